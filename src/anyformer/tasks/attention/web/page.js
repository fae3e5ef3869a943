// What is shown, and what changes it; the last of the scripts.
function options(select, names, at) {
  select.replaceChildren(...names.map((name, i) => new Option(name, i)));
  select.selectedIndex = at;
}

function show(focus = false) {
  const all = layers();
  now.layer = Math.max(0, Math.min(all.length - 1, now.layer));
  const map = all[now.layer];
  now.head = Math.max(0, Math.min(map.heads.length - 1, now.head));
  options($("layer"), all.map((m) => m.name.replace(/^layer /, "")), now.layer);
  options($("head"), map.heads.map(String), now.head);
  const more = kinds.length > 1 ? `${map.kind}, ` : "";
  const title = `${more}${map.name}, head ${map.heads[now.head]}`;
  $("now").textContent = title[0].toUpperCase() + title.slice(1);
  const ends = { layer: [now.layer, all.length - 1], head: [now.head, map.heads.length - 1] };
  document.querySelectorAll("[data-step]").forEach((button) => {
    const [at, last] = ends[button.dataset.step];
    button.disabled = Number(button.dataset.by) < 0 ? at === 0 : at === last;
  });
  $("tab-image").hidden = !(data.image && map.side);
  if (now.view === "image" && $("tab-image").hidden) view("heat");
  else draw();
  marked(focus);
}

function draw() {
  $("tip").hidden = true;
  ({ heat, lines: strands, image: patches })[now.view]();
}

function view(name) {
  now.view = name;
  for (const one of ["heat", "lines", "image"]) {
    const tab = $(`tab-${one}`);
    tab.setAttribute("aria-selected", one === name);
    tab.tabIndex = one === name ? 0 : -1;
    $(one).hidden = one !== name;
  }
  draw();
}

function listen() {
  $("kind").addEventListener("change", () => {
    Object.assign(now, { kind: kinds[$("kind").selectedIndex], query: 0, cell: null, token: null, kept: false });
    overview();
    show();
  });
  for (const what of ["layer", "head"]) {
    $(what).addEventListener("change", () => { now[what] = $(what).selectedIndex; show(); });
  }
  document.querySelectorAll("[data-step]").forEach((button) => button.addEventListener("click", () => {
    now[button.dataset.step] += Number(button.dataset.by);
    show();
  }));
  $("scale").addEventListener("change", () => { thumbs(); draw(); });
  $("views").addEventListener("click", (event) => {
    if (event.target.id.startsWith("tab-")) view(event.target.id.slice(4));
  });
  $("views").addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const tabs = [...$("views").children].filter((tab) => !tab.hidden), at = tabs.indexOf(document.activeElement);
    const next = tabs[(at + by + tabs.length) % tabs.length];
    view(next.id.slice(4));
    next.focus();
  });
  $("picture").addEventListener("pointermove", pointed);
  $("picture").addEventListener("pointerdown", pointed);
  $("picture").addEventListener("pointerleave", () => { $("tip").hidden = true; });
  $("cells").addEventListener("keydown", walked);
  $("cells").addEventListener("focus", () => {
    if ($("cells").matches(":focus-visible")) { point(now.cell || [0, 0]); shownAtCell(); }
  });
  $("cells").addEventListener("blur", () => { $("tip").hidden = true; });
  $("query").addEventListener("change", () => { now.query = $("query").selectedIndex; patches(); });
  $("patches").addEventListener("pointermove", (event) => {
    const k = patchAt(event), map = chosen();
    tip(event.clientX, event.clientY, `${queries(map)[now.query]} → ${keys(map)[k]}: ${told(weight(now.query, k))}`);
  });
  $("patches").addEventListener("pointerleave", () => { $("tip").hidden = true; });
  $("patches").addEventListener("click", (event) => {
    if (chosen().queries === chosen().keys) { now.query = patchAt(event); patches(); }
  });
  $("grid").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    Object.assign(now, { layer: Number(button.dataset.layer), head: Number(button.dataset.head) });
    show();
  });
  $("grid").addEventListener("keydown", (event) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    Object.assign(now, { layer: now.layer + by[0], head: now.head + by[1] });
    show(true);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    $("tip").hidden = true;
    now.kept = false;
    if (now.view === "lines") isolate(null);
  });
  tokens($("from"));
  tokens($("to"));
  addEventListener("resize", () => { thumbs(); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { dyed(); thumbs(); draw(); });
}

dyed();
options($("kind"), kinds, 0);
$("kinds").hidden = kinds.length < 2;
$("bar").hidden = $("both").hidden = false;
listen();
overview();
show();
