// Made-up inputs that fit a net: figures to draw, a picture, a signal, the features of a sound, numbers. They show that a
// net runs and what its layers do, not how good it is.

const ring = (x, y, wide, high) => Array.from({ length: 25 }, (_, i) => [x + wide * Math.sin(i * Math.PI / 12), y - high * Math.cos(i * Math.PI / 12)]);

/** Strokes in the unit square, as a pad takes them. */
const DIGITS = [
  [[[0.28, 0.17], [0.72, 0.17], [0.6, 0.5], [0.45, 0.88]]],
  [ring(0.5, 0.5, 0.2, 0.32)],
  [ring(0.5, 0.32, 0.17, 0.17), ring(0.5, 0.68, 0.2, 0.19)],
];
const FIGURES = [
  [[[0.2, 0.8], [0.5, 0.2], [0.8, 0.8], [0.2, 0.8]]],
  [ring(0.5, 0.5, 0.3, 0.3), [[0.2, 0.5], [0.8, 0.5]]],
  [[[0.2, 0.45], [0.5, 0.2], [0.8, 0.45], [0.8, 0.8], [0.2, 0.8], [0.2, 0.45]], [[0.5, 0.8], [0.5, 0.6]]],
];

export function exampleStrokes(net, turn) {
  const digits = net.facts.labels.join() === "0,1,2,3,4,5,6,7,8,9";
  const all = digits ? DIGITS : FIGURES;
  return all[turn % all.length];
}

/** A landscape of 256×256 pixels, in other colours each time. */
export function examplePicture(turn) {
  const canvas = new OffscreenCanvas(256, 256);
  const context = canvas.getContext("2d");
  const hue = 205 + 70 * turn;
  const sky = context.createLinearGradient(0, 0, 0, 170);
  sky.addColorStop(0, `hsl(${hue} 70% 45%)`);
  sky.addColorStop(1, `hsl(${hue} 60% 80%)`);
  context.fillStyle = sky;
  context.fillRect(0, 0, 256, 256);
  context.fillStyle = `hsl(${hue + 200} 90% 60%)`;
  context.beginPath();
  context.arc(60 + (57 * turn) % 140, 70, 28, 0, 2 * Math.PI);
  context.fill();
  for (const [at, light] of [[150, 38], [195, 26]]) {
    context.fillStyle = `hsl(${hue + 270} 45% ${light}%)`;
    context.beginPath();
    context.moveTo(0, 256);
    for (let x = 0; x <= 256; x += 8) context.lineTo(x, at + 22 * Math.sin(x / 34 + at + turn));
    context.lineTo(256, 256);
    context.fill();
  }
  return canvas;
}

/** Numbers that repeat, between −1 and 1 (a hash, so that every browser shows the same). */
const noise = (i) => ((Math.imul(i + 1, 0x9e3779b1) >>> 8) % 2001) / 1000 - 1;

const SIGNALS = [
  ["a slow swing", (t, c) => 70 * Math.sin(t / 12 + c)],
  ["a fast shake", (t, c) => 80 * Math.sin(t / 2.2 + 2 * c) * Math.sin(t / 20) + 10 * noise(31 * t + c)],
  ["a knock", (t, c) => 110 * Math.exp(-Math.max(0, t - 20) / 9) * Math.sin(t * (1 + c / 4)) * (t >= 20) + 4 * noise(31 * t + c)],
];
const SOUNDS = [
  ["a tone that rises", (row, band) => 90 * Math.exp(-(((band - row) / 0.04) ** 2)) - 70],
  ["two bursts of noise", (row, band, i) => (row % 0.5 > 0.15 && row % 0.5 < 0.35 ? 40 * (1 - band) + 25 * noise(i) : -100 + 8 * noise(i))],
  ["a quiet room", (row, band, i) => -105 + 12 * noise(i)],
];

/** What is made up, and the int8 values, in the order of the input tensor. */
export function exampleValues(net, turn) {
  const { input } = net.facts;
  const { size, height, width, channels, zeroPoint } = input;
  const within = (value) => Math.max(-128, Math.min(127, Math.round(value)));
  if (net.frontEnd?.sound) {
    const [what, make] = SOUNDS[turn % SOUNDS.length];
    return { what, values: Int8Array.from({ length: size }, (_, i) => within(make(Math.floor(i / width) / height, (i % width) / width, i))) };
  }
  if (net.frontEnd) {
    const [what, make] = SIGNALS[turn % SIGNALS.length];
    const values = new Int8Array(size);
    eachSample(net, (at, t, c) => { values[at] = within(zeroPoint + make(t, c)); });
    return { what, values };
  }
  const parts = channels * (turn + 1);
  return { what: "numbers that rise and fall", values: Int8Array.from({ length: size }, (_, i) => within(zeroPoint + 90 * Math.sin((2 * Math.PI * parts * (i + 1)) / (size + 1)))) };
}

/** Calls `visit(index, time, channel)` for each value of a window of a signal. */
export function eachSample({ facts: { input }, frontEnd }, visit) {
  const length = input.size / frontEnd.channels;
  const apart = input.channels === frontEnd.channels; // channel after channel, not sample after sample
  for (let at = 0; at < input.size; at++) {
    if (apart) visit(at, at % length, Math.floor(at / length));
    else visit(at, Math.floor(at / frontEnd.channels), at % frontEnd.channels);
  }
}
