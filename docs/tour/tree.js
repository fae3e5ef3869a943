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
    if (event.target.closest(".tree-close")) show("", true);
    const link = event.target.closest("a");
    const address = link && link.getAttribute("href");
    if (!address || address[0] !== "#" || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    show(address.slice(1), true);
    uncover(address.slice(1));
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
  function uncover(name) {  // on a phone the panel would lie over what was chosen
    const link = links.find((other) => other.dataset.model === name);
    const top = link ? link.getBoundingClientRect().top : 0;
    const covered = matchMedia("(max-width: 60rem)").matches && top > innerHeight * 0.4;
    if (covered) scrollBy(0, top - innerHeight * 0.25);
  }
  function named() {
    const name = decodeURIComponent(location.hash.slice(1));
    show(name, false);
    const link = links.find((other) => other.dataset.model === name);
    if (link) link.scrollIntoView({ block: "center" });
    uncover(name);
  }
  window.addEventListener("hashchange", named);
  named();
})();
