// The weights of every binary layer, a pixel each; those that just flipped stand out.
import { count, make } from "./elements.js";

const MOST = 1 << 18; // bits of a layer that are drawn
const LAYERS = 50; // that are drawn
const word = (r, g, b) => new Uint32Array(Uint8Array.of(r, g, b, 255).buffer)[0];
const PLUS = word(214, 232, 228), MINUS = word(28, 54, 50), FLIPPED = word(245, 158, 11);

const binaryLayers = (net) => net.facts.layers.filter(({ bits }) => bits === 1);

const ones = (byte) => {
  let left = byte, found = 0;
  for (; left; left &= left - 1) found += 1;
  return found;
};

/** Bits of a layer that differ between two images. */
export function flipsOf({ weightsAt, weightsBytes }, before, after) {
  if (before === after) return 0;
  let flips = 0;
  for (let i = weightsAt; i < weightsAt + weightsBytes; i++) flips += ones(before[i] ^ after[i]);
  return flips;
}

export function totalFlips(net, before, after) {
  return binaryLayers(net).reduce((sum, layer) => sum + flipsOf(layer, before, after), 0);
}

export const totalBits = (net) => binaryLayers(net).reduce((sum, { weights }) => sum + weights, 0);

function paint(canvas, { weightsAt, weightsBytes }, before, after) {
  const bits = Math.min(8 * weightsBytes, MOST);
  const columns = bits < 1024 ? 64 : bits < 4096 ? 128 : 256; // small layers stay visible
  canvas.width = columns;
  canvas.height = Math.ceil(bits / columns);
  const image = new ImageData(canvas.width, canvas.height);
  const words = new Uint32Array(image.data.buffer);
  for (let i = 0; i < bits; i++) {
    const at = weightsAt + (i >> 3), mask = 1 << (i & 7);
    words[i] = (before[at] ^ after[at]) & mask ? FLIPPED : after[at] & mask ? PLUS : MINUS;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** A row per binary layer, of the first ones: `first` is the image it started from, `before` and `after` those around the last step. */
export function showBits(list, net, first, before, after) {
  const layers = binaryLayers(net).slice(0, LAYERS);
  if (list.children.length !== layers.length) {
    list.replaceChildren(...layers.map(() => make("li", {}, make("div", {}, make("span"), make("span")), make("canvas"))));
  }
  layers.forEach((layer, i) => {
    const [text, canvas] = list.children[i].children;
    const flips = flipsOf(layer, before, after);
    text.children[0].textContent = layer.name;
    text.children[1].textContent = `${count(layer.weights)} bits, ${count(flips)} just flipped, `
      + `${count(flipsOf(layer, first, after))} differ from the start`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Bits of ${layer.name}, ${flips} just flipped`);
    paint(canvas, layer, before, after);
  });
}
