"use strict";
// Tabs after the pattern of WAI-ARIA: arrows, Home and End move; without this all panels show.
function tabbed(box) {
  const panels = [...box.querySelectorAll(":scope > .panel")];
  if (panels.length < 2) return;
  const list = document.createElement("div");
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", box.dataset.label);
  const tabs = panels.map((panel) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.id = "tab-" + panel.id;
    tab.textContent = panel.dataset.tab;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel.id);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    list.append(tab);
    return tab;
  });
  const show = (chosen) => tabs.forEach((tab, i) => {
    tab.setAttribute("aria-selected", i === chosen);
    tab.tabIndex = i === chosen ? 0 : -1;
    panels[i].hidden = i !== chosen;
  });
  list.addEventListener("click", (event) => {
    const i = tabs.indexOf(event.target);
    if (i >= 0) show(i);
  });
  list.addEventListener("keydown", (event) => {
    const now = tabs.indexOf(document.activeElement), last = tabs.length - 1;
    const next = { ArrowRight: now === last ? 0 : now + 1, ArrowLeft: now ? now - 1 : last,
                   Home: 0, End: last }[event.key];
    if (next === undefined || now < 0) return;
    event.preventDefault();
    show(next);
    tabs[next].focus();
  });
  box.prepend(list);
  show(0);
}

// A click on a column's head sorts by it, a second one the other way.
function sorted(table) {
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, i) => {
    const cell = row.cells[i], told = cell.querySelector("[data-value]");
    const text = told ? told.dataset.value : cell.textContent.trim();
    return text !== "" && !isNaN(text) ? Number(text) : text;
  };
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const x = value(a, i), y = value(b, i);
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = typeof x === typeof y && typeof x === "number" ? x - y
          : String(x).localeCompare(String(y));
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}

function enhance() {
  document.querySelectorAll(".tabs").forEach(tabbed);
  document.querySelectorAll("table.sortable").forEach(sorted);
}
enhance();
