"use strict";
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const FAINT = 0.08; // lines below this share of full strength are left out
const SIDE = { least: 13, high: 17, most: 34 }; // of a cell, in pixels: high, where a map is to fit the window
const kinds = [...new Set(data.maps.map((map) => map.kind))];
const now = { kind: kinds[0], layer: 0, head: 0, view: "heat", cell: null, token: null, kept: false };

// ---------------------------------------------------------------- the weights
const layers = () => data.maps.filter((map) => map.kind === now.kind);
const chosen = () => layers()[now.layer];
const queries = (map) => data.labels[map.queries];
const keys = (map) => data.labels[map.keys];

// The weights of one head, row by row.
function weights(map, head) {
  if (!map.read) {
    const text = atob(map.weights), count = text.length / 2;
    map.read = new Float64Array(count);
    for (let i = 0; i < count; i++) {
      const step = text.charCodeAt(2 * i) + 256 * text.charCodeAt(2 * i + 1);
      map.read[i] = step / 65535;
    }
    delete map.weights;
  }
  const size = queries(map).length * keys(map).length;
  return map.read.subarray(head * size, (head + 1) * size);
}
const told = (w) => w.toFixed(3);
const weight = (q, k) => weights(chosen(), now.head)[q * keys(chosen()).length + k];

// The weight that is drawn in the strongest colour.
function strongest(map, head) {
  if ($("scale").value === "one") return 1;
  return weights(map, head).reduce((most, w) => Math.max(most, w), 0) || 1;
}

// ---------------------------------------------------------------- colours
let ramp; // 256 colours, from nothing to the strongest
function dyed() {
  const style = getComputedStyle(document.documentElement);
  const stops = [0, 1, 2, 3].map((stop) => {
    const hex = style.getPropertyValue(`--heat-${stop}`).trim();
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  });
  ramp = Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * 3, low = Math.min(2, Math.floor(at)), share = at - low;
    return stops[low].map((c, j) => Math.round(c + (stops[low + 1][j] - c) * share));
  });
}

function paint(canvas, map, head) {
  const values = weights(map, head), top = strongest(map, head);
  canvas.width = keys(map).length;
  canvas.height = queries(map).length;
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  values.forEach((w, i) => {
    image.data.set(ramp[Math.round((w / top) * 255)], 4 * i);
    image.data[4 * i + 3] = 255;
  });
  context.putImageData(image, 0, 0);
}

// From nothing to the strongest weight, as the heat map is coloured.
function legend(map) {
  const context = $("ramp").getContext("2d"), image = context.createImageData(256, 1);
  ramp.forEach((colour, i) => image.data.set([...colour, 255], 4 * i));
  context.putImageData(image, 0, 0);
  $("most").textContent = told(strongest(map, now.head));
}

// ---------------------------------------------------------------- heat map
function labelled(box, names) {
  box.replaceChildren(...names.map((name) => {
    const label = document.createElement("span");
    label.textContent = label.title = name;
    return label;
  }));
}

function heat() {
  const map = chosen();
  labelled($("rows"), queries(map));
  labelled($("columns"), keys(map));
  $("cells").setAttribute("aria-label", `Weights, ${queries(map).length} queries down and ${keys(map).length} keys across`);
  paint($("picture"), map, now.head);
  legend(map);
  fit();
  point(now.cell);
}

function fit() {
  const map = chosen(), room = $("heat").clientWidth - $("rows").offsetWidth - 8;
  const high = Math.floor((0.86 * innerHeight - $("columns").offsetHeight) / queries(map).length);
  const fitting = Math.min(Math.floor(room / keys(map).length), Math.max(SIDE.high, high));
  const side = Math.max(SIDE.least, Math.min(SIDE.most, fitting));
  $("frame").style.setProperty("--side", `${side}px`);
  $("picture").style.width = `${side * keys(map).length}px`;
  $("picture").style.height = `${side * queries(map).length}px`;
  now.side = side;
}

// Mark a cell [query, key], and say its weight.
function point(cell) {
  const map = chosen();
  document.querySelectorAll(".hit").forEach((label) => label.classList.remove("hit"));
  const inside = cell && cell[0] < queries(map).length && cell[1] < keys(map).length;
  now.cell = inside ? cell : null;
  $("cell").hidden = !inside;
  if (!inside) {
    $("said").textContent = "";
    return;
  }
  const [q, k] = cell;
  $("cell").style.transform = `translate(${k * now.side}px, ${q * now.side}px)`;
  $("cell").style.left = $("cell").style.top = 0;
  $("rows").children[q].classList.add("hit");
  $("columns").children[k].classList.add("hit");
  $("said").textContent = `${queries(map)[q]} → ${keys(map)[k]}: ${told(weight(q, k))}`;
}

function tip(x, y) {
  const box = $("tip");
  box.textContent = $("said").textContent;
  box.hidden = !box.textContent;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  box.style.top = `${y + 18 + height > innerHeight ? y - height - 10 : y + 18}px`;
}

function pointed(event) {
  const box = $("picture").getBoundingClientRect(), map = chosen();
  const at = (from, span, count) => Math.max(0, Math.min(count - 1, Math.floor((from / span) * count)));
  point([at(event.clientY - box.top, box.height, queries(map).length), at(event.clientX - box.left, box.width, keys(map).length)]);
  tip(event.clientX, event.clientY);
}

function walked(event) {
  const map = chosen(), rows = queries(map).length, columns = keys(map).length;
  const [q, k] = now.cell || [0, 0];
  const next = { ArrowUp: [q - 1, k], ArrowDown: [q + 1, k], ArrowLeft: [q, k - 1], ArrowRight: [q, k + 1],
                 Home: [q, 0], End: [q, columns - 1] }[event.key];
  if (!next) return;
  event.preventDefault();
  point([Math.max(0, Math.min(rows - 1, next[0])), Math.max(0, Math.min(columns - 1, next[1]))]);
  shownAtCell();
}

// The tip at the cell that the keyboard chose, scrolled into sight below the labels.
function shownAtCell() {
  const frame = $("frame"), side = now.side, [q, k] = now.cell;
  const room = [frame.clientHeight - $("columns").offsetHeight, frame.clientWidth - $("rows").offsetWidth];
  const into = (from, at, span) => Math.max(Math.min(from, at * side), (at + 1) * side - span + 4);
  frame.scrollTop = into(frame.scrollTop, q, room[0]);
  frame.scrollLeft = into(frame.scrollLeft, k, room[1]);
  const box = $("cell").getBoundingClientRect();
  tip(box.right, box.bottom);
}

// ---------------------------------------------------------------- lines
const ROW = 100; // height of a row in the drawing's own units

function listed(list, names) {
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
  const lines = [];
  for (let q = 0; q < sizes.from; q++) for (let k = 0; k < sizes.to; k++) {
    const share = weight(q, k) / top;
    const mine = now.token && (now.token.side === "from" ? q : k) === now.token.at;
    if (now.token ? mine && share > 0.001 : share >= FAINT) lines.push([share, q, k]);
  }
  lines.sort((a, b) => a[0] - b[0]);
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

// ---------------------------------------------------------------- all heads
function cell(role, ...content) {
  const box = document.createElement("span");
  box.setAttribute("role", role);
  box.append(...content);
  return box;
}

function row(...cells) {
  const box = document.createElement("div");
  box.setAttribute("role", "row");
  box.append(...cells);
  return box;
}

function thumb(map, layer, head) {
  const button = document.createElement("button"), canvas = document.createElement("canvas");
  button.type = "button";
  button.tabIndex = -1;
  button.dataset.layer = layer;
  button.dataset.head = head;
  button.title = `${map.name}, head ${map.heads[head]}`;
  button.setAttribute("aria-label", button.title);
  button.append(canvas);
  return button;
}

function overview() {
  const all = layers(), heads = [...new Set(all.flatMap((map) => map.heads))].sort((a, b) => a - b);
  const head = row(cell("columnheader", "layer"), ...heads.map((h) => cell("columnheader", `${h}`)));
  const rows = all.map((map, i) => {
    const title = cell("rowheader", `${map.layer}`);
    title.title = map.name;
    return row(title, ...map.heads.map((_, h) => cell("gridcell", thumb(map, i, h))));
  });
  $("grid").replaceChildren(head, ...rows);
  thumbs();
}

function thumbs() {
  const all = layers();
  const many = Math.max(...all.map((map) => map.heads.length));
  const side = Math.max(24, Math.min(72, Math.floor(($("grid").parentElement.clientWidth - 48) / many) - 2));
  $("grid").style.setProperty("--thumb", `${side}px`);
  $("grid").querySelectorAll("button").forEach((button) => {
    const map = all[button.dataset.layer], canvas = button.firstChild;
    paint(canvas, map, Number(button.dataset.head));
    canvas.className = canvas.width < 2 * side ? "few" : "";
  });
}

function marked(focus) {
  $("grid").querySelectorAll("button").forEach((button) => {
    const on = Number(button.dataset.layer) === now.layer && Number(button.dataset.head) === now.head;
    button.tabIndex = on ? 0 : -1;
    if (on) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    if (on && focus) button.focus();
  });
}

// ---------------------------------------------------------------- what is shown
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
  draw();
  marked(focus);
}

function draw() {
  $("tip").hidden = true;
  if (now.view === "heat") heat();
  else strands();
}

function view(name) {
  now.view = name;
  for (const one of ["heat", "lines"]) {
    const tab = $(`tab-${one}`);
    tab.setAttribute("aria-selected", one === name);
    tab.tabIndex = one === name ? 0 : -1;
    $(one).hidden = one !== name;
  }
  draw();
}

function listen() {
  $("kind").addEventListener("change", () => {
    Object.assign(now, { kind: kinds[$("kind").selectedIndex], cell: null, token: null, kept: false });
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
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    view(now.view === "heat" ? "lines" : "heat");
    $(`tab-${now.view}`).focus();
  });
  $("picture").addEventListener("pointermove", pointed);
  $("picture").addEventListener("pointerdown", pointed);
  $("picture").addEventListener("pointerleave", () => { $("tip").hidden = true; });
  $("cells").addEventListener("keydown", walked);
  $("cells").addEventListener("focus", () => {
    if ($("cells").matches(":focus-visible")) { point(now.cell || [0, 0]); shownAtCell(); }
  });
  $("cells").addEventListener("blur", () => { $("tip").hidden = true; });
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
