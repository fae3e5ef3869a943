// Lines from queries to keys, all or those of one token.
const MANY = 2000; // lines that are drawn at once: the strongest
const ROW = 100; // height of a row in the drawing's own units

function listed(list, names) {
  list.removeAttribute("aria-activedescendant");
  list.replaceChildren(...names.map((name, i) => {
    const item = document.createElement("li"), token = document.createElement("span"), value = document.createElement("span");
    item.id = `${list.id}-${i}`;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", "false");
    token.textContent = token.title = name;
    value.className = "value";
    item.append(token, value);
    return item;
  }));
}

function strands() {
  const map = chosen(), high = Math.max(queries(map).length, keys(map).length);
  listed($("from"), queries(map));
  listed($("to"), keys(map));
  $("strands").setAttribute("viewBox", `0 0 100 ${high * ROW}`);
  $("strands").style.height = `${high * 1.6}rem`;
  isolate(now.token);
}

// The lines of one token, {side, at}, with their weights; without one all that are not faint.
function isolate(token) {
  const map = chosen(), top = strongest(map, now.head), sizes = { from: queries(map).length, to: keys(map).length };
  now.token = token && token.at < sizes[token.side] ? token : null;
  now.kept = now.kept && now.token !== null;
  const values = weights(map, now.head);
  let lines = [];
  for (let q = 0; q < sizes.from; q++) for (let k = 0; k < sizes.to; k++) {
    const share = values[q * sizes.to + k] / top;
    const mine = now.token && (now.token.side === "from" ? q : k) === now.token.at;
    if (now.token ? mine && share > 0.001 : share >= FAINT) lines.push([share, q, k]);
  }
  lines = lines.sort((a, b) => a[0] - b[0]).slice(-MANY);
  $("strands").replaceChildren(...lines.map(([share, q, k]) => {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const from = (q + 0.5) * ROW, to = (k + 0.5) * ROW;
    line.setAttribute("d", `M0 ${from}C50 ${from} 50 ${to} 100 ${to}`);
    line.style.opacity = share;
    return line;
  }));
  for (const side of ["from", "to"]) [...$(side).children].forEach((item, i) => {
    const on = now.token !== null && now.token.side === side && now.token.at === i;
    item.classList.toggle("on", on);
    item.setAttribute("aria-selected", on);
    const other = now.token && now.token.side !== side;
    item.lastChild.textContent = !other ? "" : told(side === "to" ? weight(now.token.at, i) : weight(i, now.token.at));
    if (on) $(side).setAttribute("aria-activedescendant", item.id);
  });
}

function tokens(list) {
  const at = (event) => [...list.children].indexOf(event.target.closest("li"));
  list.addEventListener("pointerover", (event) => {
    if (!now.kept && event.pointerType !== "touch" && at(event) >= 0) isolate({ side: list.id, at: at(event) });
  });
  list.addEventListener("pointerleave", () => { if (!now.kept) isolate(null); });
  list.addEventListener("click", (event) => {
    const i = at(event), again = now.kept && now.token.side === list.id && now.token.at === i;
    now.kept = i >= 0 && !again;
    isolate(now.kept ? { side: list.id, at: i } : null);
  });
  list.addEventListener("keydown", (event) => {
    const last = list.children.length - 1, mine = now.token && now.token.side === list.id, i = mine ? now.token.at : -1;
    const next = { ArrowUp: Math.max(0, i - 1), ArrowDown: Math.min(last, i + 1), Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    now.kept = true;
    isolate({ side: list.id, at: next });
    list.children[next].scrollIntoView({ block: "nearest" });
  });
}
