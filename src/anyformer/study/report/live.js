"use strict";
// Follow a study: ask for its state, and put the new report in place of the old one when it changed.
// What was opened, which tabs were chosen and how far the page was scrolled stay as they were.
const live = document.getElementById("live");
let shown = live.dataset.state;

// Things that open, by their section, their words and what stands before them.
function folds() {
  const found = new Map();
  for (const fold of document.querySelectorAll("main details")) {
    const place = fold.closest(".panel, section")?.id + fold.querySelector("summary").textContent;
    let name = place;
    for (let i = 1; found.has(name); i += 1) name = place + i;
    found.set(name, fold);
  }
  return found;
}

function kept() {
  const chosen = document.querySelectorAll("[role=tab][aria-selected=true]");
  const open = [...folds()].filter(([, fold]) => fold.open).map(([name]) => name);
  const focus = document.activeElement && document.activeElement.id;
  return { tabs: [...chosen].map((tab) => tab.id), open, focus, x: scrollX, y: scrollY };
}

function restore(old) {
  for (const id of old.tabs) document.getElementById(id)?.click();
  const now = folds();
  for (const name of old.open) if (now.has(name)) now.get(name).open = true;
  if (old.focus) document.getElementById(old.focus)?.focus({ preventScroll: true });
  scrollTo(old.x, old.y);
}

async function follow() {
  try {
    const told = await (await fetch("state", { cache: "no-store" })).json();
    if (told.state !== shown) {
      const text = await (await fetch("./", { cache: "no-store" })).text();
      const made = new DOMParser().parseFromString(text, "text/html");
      const old = kept();
      document.querySelector("main").replaceWith(made.querySelector("main"));
      document.title = made.title;
      enhance();
      restore(old);
      shown = made.getElementById("live").dataset.state;
    }
    say(told.over ? "The study is over." : "Live: this page follows the study.");
  } catch {
    say("Not connected: the command that served this page has ended.");
  }
  setTimeout(follow, 2000);
}

function say(words) {
  if (live.textContent !== words) live.textContent = words;
}
follow();
