// What each layer sees: its channels as small pictures.
import { make, shape } from "./elements.js";

const TILE = 40; // pixels of the page a channel takes at least
const LINE = 6; // pixels of a channel of a signal

/** Colour of a value: from dark to bright green above the zero point, to orange below it. */
export function colour(value, zero, low, high) {
  const share = value >= zero ? (value - zero) / Math.max(1, high - zero) : (zero - value) / Math.max(1, zero - low);
  const from = [16, 32, 29], to = value >= zero ? [94, 234, 212] : [245, 158, 11];
  return from.map((start, i) => Math.round(start + share * (to[i] - start)));
}

/** The colours of −128 … 127, as words of an ImageData. */
function colours(zero, low, high) {
  const words = new Uint32Array(256);
  const bytes = new Uint8ClampedArray(words.buffer);
  for (let i = 0; i < words.length; i++) bytes.set([...colour(Math.max(low, Math.min(high, i - 128)), zero, low, high), 255], 4 * i);
  return words;
}

/** `part`: what worker.js has thinned a layer's output to. */
function paint(canvas, part, tensor, narrow) {
  const { values, height, width, channels, low, high } = part;
  const isSignal = tensor.rank === 3 && height === 1 && width > 1; // a line per channel
  const picture = tensor.rank === 3 && !isSignal;
  const across = picture ? Math.max(1, Math.floor(TILE / width)) : isSignal ? Math.max(1, Math.floor(480 / width)) : 20;
  const down = isSignal ? LINE : across;
  const gap = picture ? 3 : 1;
  const [w, h] = [width * across + gap, height * down + gap];
  const columns = isSignal ? 1 : Math.min(channels, (picture ? (w > 60 ? 8 : 16) : 32) / (narrow ? 2 : 1));
  canvas.width = columns * w;
  canvas.height = Math.ceil(channels / columns) * h;
  const context = canvas.getContext("2d");
  const table = colours(tensor.zeroPoint, low, high);
  const tile = new ImageData(width, height);
  const words = new Uint32Array(tile.data.buffer);
  const scratch = new OffscreenCanvas(width, height);
  const drawn = scratch.getContext("2d");
  context.imageSmoothingEnabled = false;
  for (let c = 0; c < channels; c++) {
    for (let i = 0; i < words.length; i++) words[i] = table[values[c * words.length + i] + 128];
    drawn.putImageData(tile, 0, 0);
    context.drawImage(scratch, (c % columns) * w, Math.floor(c / columns) * h, w - gap, h - gap);
  }
}

/** Fill the list with a row per layer that computes something new. */
export function showMaps(list, net, layers) {
  const { tensors } = net.facts;
  const shown = net.facts.layers.slice(0, layers.length).filter(({ kind, index }) => kind !== "flatten" && layers[index]);
  while (list.children.length > shown.length) list.lastChild.remove();
  while (list.children.length < shown.length) {
    list.append(make("li", {}, make("div", {}, make("b"), make("span", { className: "quiet" })), make("canvas")));
  }
  shown.forEach((layer, i) => {
    const tensor = tensors[layer.output];
    const part = layers[layer.index];
    const [text, canvas] = list.children[i].children;
    text.children[0].textContent = layer.name;
    const more = part.channels < tensor.channels ? `, first ${part.channels} channels` : "";
    text.children[1].textContent = `${layer.description} → ${shape(tensor)}${more}`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Output of ${layer.name}, ${shape(tensor)}`);
    paint(canvas, part, tensor, list.clientWidth < 500);
  });
}
