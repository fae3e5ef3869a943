"use strict";
// The weights of a page, their names and their colours; the first of the scripts.
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const FAINT = 0.08; // lines below this share of full strength are left out
const SIDE = { least: 13, high: 17, most: 34 }; // of a cell, in pixels: high, where a map is to fit the window
const kinds = [...new Set(data.maps.map((map) => map.kind))];
const now = { kind: kinds[0], layer: 0, head: 0, view: "heat", query: 0, cell: null, token: null, kept: false };

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

// Colours.
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

// A head, a pixel for each weight; with a most, for the greatest of so many that they fit into it.
function paint(canvas, map, head, most = Infinity) {
  const values = weights(map, head), top = strongest(map, head), across = keys(map).length;
  const width = canvas.width = Math.min(most, across);
  const height = canvas.height = Math.min(most, queries(map).length);
  const greatest = new Float64Array(width * height);
  values.forEach((w, i) => {
    const x = Math.floor(((i % across) * width) / across), y = Math.floor((Math.floor(i / across) * height) / queries(map).length);
    greatest[y * width + x] = Math.max(greatest[y * width + x], w);
  });
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  greatest.forEach((w, i) => image.data.set([...ramp[Math.round((w / top) * 255)], 255], 4 * i));
  context.putImageData(image, 0, 0);
}

// From nothing to the strongest weight, as the heat map is coloured.
function legend(map) {
  const context = $("ramp").getContext("2d"), image = context.createImageData(256, 1);
  ramp.forEach((colour, i) => image.data.set([...colour, 255], 4 * i));
  context.putImageData(image, 0, 0);
  $("most").textContent = told(strongest(map, now.head));
}
