// The heat map: cells, labels, the weight that is pointed at.
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

function tip(x, y, text = $("said").textContent) {
  const box = $("tip");
  box.textContent = text;
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
