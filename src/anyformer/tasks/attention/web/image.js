// An image, bright where it is read.
const WIDE = 480; // pixels of the drawing at least
let picture; // the image itself, as a canvas

function pictured() {
  const { width, height, bytes } = data.image, text = atob(bytes), canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    image.data.set([0, 1, 2].map((c) => text.charCodeAt(3 * i + c)), 4 * i);
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// The patch of a position of either side, or less than 0 where it is none.
const patch = (names, at) => at - (names.length - chosen().side ** 2);

function patches() {
  const map = chosen(), side = map.side, canvas = $("patches"), context = canvas.getContext("2d");
  picture = picture || pictured();
  now.query = Math.min(now.query, queries(map).length - 1);
  options($("query"), queries(map), now.query);
  const scale = Math.ceil(WIDE / picture.width);
  canvas.width = scale * picture.width;
  canvas.height = scale * picture.height;
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  const size = canvas.width / side, first = keys(map).length - side ** 2;
  const read = Array.from({ length: side ** 2 }, (_, i) => weight(now.query, first + i));
  const top = $("scale").value === "one" ? 1 : Math.max(...read) || 1;
  read.forEach((w, i) => {
    context.fillStyle = `rgba(0, 0, 0, ${0.88 * (1 - w / top)})`;
    context.fillRect((i % side) * size, Math.floor(i / side) * size, size, size);
  });
  const own = map.queries === map.keys ? patch(queries(map), now.query) : -1;
  if (own < 0) return;
  context.lineWidth = canvas.width / 120;
  context.strokeStyle = "#ff8f4a";
  context.strokeRect((own % side) * size, Math.floor(own / side) * size, size, size);
}

// The key that the pointer is at.
function patchAt(event) {
  const map = chosen(), box = $("patches").getBoundingClientRect(), side = map.side;
  const at = (from, span) => Math.max(0, Math.min(side - 1, Math.floor((from / span) * side)));
  return keys(map).length - side ** 2 + at(event.clientY - box.top, box.height) * side + at(event.clientX - box.left, box.width);
}
