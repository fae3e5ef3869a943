// The family tree: choose a model with the mouse, a finger or the arrow keys.
(() => {
  const root = document.getElementById("tree");
  const links = [...root.querySelectorAll("a[data-model]")];
  const panels = [...root.querySelectorAll(".tree-panel")];
  root.classList.add("tree-live");
  function show(name, move) {
    const found = panels.find((panel) => panel.dataset.panel === name);
    panels.forEach((panel) => panel.classList.toggle("tree-shown", panel === (found || panels[0])));
    links.forEach((link) => {
      if (link.dataset.model === name) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
    root.classList.toggle("tree-chosen", Boolean(found));
    if (found) found.parentElement.scrollTop = 0;
    if (move) history.replaceState(null, "", found ? "#" + name : location.pathname);
  }
  root.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    const address = link && link.getAttribute("href");
    if (!address || address[0] !== "#" || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    show(address.slice(1), true);
  });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") show("", true);
    const at = links.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (at < 0 || !step) return;
    const next = links[at + step];
    event.preventDefault();
    if (next) { next.focus(); show(next.dataset.model, true); }
  });
  function named() {
    const name = decodeURIComponent(location.hash.slice(1));
    show(name, false);
    const link = links.find((other) => other.dataset.model === name);
    if (link) link.scrollIntoView({ block: "center" });
  }
  window.addEventListener("hashchange", named);
  named();
})();
