// All heads as small pictures.
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
    paint(canvas, map, Number(button.dataset.head), 2 * side);
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
