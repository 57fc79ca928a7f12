// Inputs that are no pictures, drawn: signals as lines, the features of a sound as a map of time and pitch, others as maps.
import { eachSample } from "./examples.js";
import { colour } from "./maps.js";

const LINES = ["#5eead4", "#f59e0b", "#93c5fd", "#f9a8d4", "#d9f99d", "#e2e8f0"];
const FINEST = 512; // cells, either way

function drawLines(canvas, net, values) {
  const { channels } = net.frontEnd;
  const length = values.length / channels;
  [canvas.width, canvas.height] = [512, 256];
  const context = canvas.getContext("2d");
  const places = Array.from({ length: Math.min(channels, LINES.length) }, () => []);
  const skip = Math.ceil(length / (4 * FINEST));
  eachSample(net, (at, t, c) => { if (c < places.length && t % skip === 0) places[c].push([4 + (504 * t) / length, 128 - values[at]]); });
  context.lineWidth = 2.5;
  places.forEach((line, c) => {
    context.strokeStyle = LINES[c];
    context.beginPath();
    for (const [x, y] of line) context.lineTo(x, y);
    context.stroke();
  });
}

function drawMap(canvas, values, { width, height, zeroPoint }, turned) {
  const [down, across] = [Math.ceil(height / FINEST), Math.ceil(width / FINEST)]; // of large ones every so-manieth
  const [rows, columns] = [Math.ceil(height / down), Math.ceil(width / across)];
  [canvas.width, canvas.height] = turned ? [rows, columns] : [columns, rows];
  const image = new ImageData(canvas.width, canvas.height);
  const [zero, low, high] = turned ? [-128, -128, 127] : [zeroPoint, -128, 127];
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      const at = turned ? (columns - 1 - x) * rows + y : y * columns + x; // time to the right, low bands below
      image.data.set([...colour(values[y * down * width + x * across], zero, low, high), 255], 4 * at);
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** The int8 input of a net that takes no pictures. */
export function paintNumbers(canvas, net, values) {
  const { input } = net.facts;
  if (net.frontEnd && !net.frontEnd.sound) drawLines(canvas, net, values);
  else if (net.frontEnd) drawMap(canvas, values, input, true);
  else drawMap(canvas, values, input.rank === 3 ? input : { ...input, width: Math.min(values.length, FINEST), height: 1 }, false);
}
