// node strangers.mjs FOLDER <images.json >results.json: each image is opened, shown, run and taught, and what came of it.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { loadCore } = await import(pathToFileURL(`${process.argv[2]}/flipbit.js`));
const core = await loadCore();
const RUN_MOST = 2e7; // multiply-adds and cells of windows: others would only take long
const MEMORY_MOST = 64e6;

const work = ({ layers, tensors }) =>
  layers.reduce((sum, { macs, kernel, output }) => sum + Math.max(macs, tensors[output].size * Math.max(1, kernel[0] * kernel[1])), 0);

function opened(bytes) {
  const net = core.open(bytes);
  if (net.labels.some((label) => typeof label !== "string") || net.layers.some(({ name }) => typeof name !== "string" || !name)) throw new Error("no text");
  if (net.ram < net.ramLeast || !(net.ram > 0)) throw new Error(`RAM ${net.ram}, least ${net.ramLeast}`);
  return net;
}

function tried(bytes) {
  const net = opened(bytes);
  if (net.ram > MEMORY_MOST || work(net) > RUN_MOST) return { opened: true, run: "large" };
  const values = Int8Array.from({ length: net.input.size }, (_, i) => (37 * i) % 256 - 128);
  const { output } = net.run(values, (op, found) => { if (found.length !== net.tensors[net.layers[op].output].size) throw new Error("a layer of another size"); });
  if (net.dequantize(output).length !== net.output.size) throw new Error("an output of another size");
  if (net.pixels) net.quantizePixels(new Uint8Array(net.input.size).fill(200));
  const found = { opened: true, run: "done", output: core.crc32(new Uint8Array(output.buffer)) };
  try {
    const learner = net.learner({ bits: true, bias: true });
    if (learner.arena > MEMORY_MOST) return { ...found, learned: "large" };
    learner.step([values, values], [0, 0], 0.05, 0.5);
    opened(learner.image); // what has learned is a whole image again, or refused in so many words
    return { ...found, learned: "done" };
  } catch (error) {
    if (error.name !== "FlipbitError") throw error;
    return { ...found, learned: error.status };
  }
}

console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((text) => {
  try {
    return tried(new Uint8Array(Buffer.from(text, "base64")));
  } catch (error) {
    return error.name === "FlipbitError" ? { error: error.status, message: error.message } : { broken: `${error.name}: ${error.message}` };
  }
})));
