// The core, away from the page: a net that runs for minutes, or breaks, leaves the page alive (engine.js).
import { FlipbitError, loadCore } from "../core/flipbit.js";
import { thinned } from "./thinned.js";

const core = loadCore();
const kept = new Map(); // nets and learners by handle
let handles = 0;
const SHOWN = 100; // layers whose output is looked at

// What a stranger's net may take of the page. Nets of microcontrollers have a thousandth of it.
const RAM_MOST = 256e6; // bytes
const INPUT_MOST = 4e6; // values
const REAL_MOST = 100_000; // outputs that are looked at
const LABELS_MOST = 10_000;
const TEXT_MOST = 200; // characters of a label, a name

const keep = (thing) => {
  kept.set(++handles, thing);
  return handles;
};

const ALIVE = 1_000; // milliseconds between two signs of life

/** Calls `work` for each item, and tells the page now and then that it goes on: only a single run may not last. */
function each(id, items, work) {
  let told = performance.now();
  return items.map((item, i) => {
    const found = work(item, i);
    if (performance.now() - told > ALIVE) {
      told = performance.now();
      postMessage({ id, alive: true });
    }
    return found;
  });
}

/** Milliseconds of one call. Clocks of pages are coarse: many calls, a few milliseconds in all. A call that took `once`,
 * long enough to be seen, is not repeated. */
function timed(once, work) {
  if (once > 50) return once;
  const start = performance.now();
  let calls = 0;
  do {
    work();
    calls += 1;
  } while (calls < 100 && performance.now() - start < 4);
  return (performance.now() - start) / calls;
}

const calls = {
  version: async () => (await core).version,

  async open(bytes) {
    const net = (await core).open(bytes);
    const megabytes = (bytes) => Math.ceil(bytes / 1e6).toLocaleString("en");
    if (net.ram > RAM_MOST) {
      throw new FlipbitError("FB_ERR_ARENA", `the net needs ${megabytes(net.ram)} MB of memory; this page has ${megabytes(RAM_MOST)} MB for it`);
    }
    if (net.input.size > INPUT_MOST) {
      const values = `${net.input.size.toLocaleString("en")} values`;
      throw new FlipbitError("FB_ERR_SHAPE", `the net's input has ${values}; this page fills at most ${INPUT_MOST.toLocaleString("en")}`);
    }
    net.reserve();
    const { size, version, crc, tensors, input, output, metadata, arenaLeast, arenaSize } = net;
    const short = (text) => text.slice(0, TEXT_MOST);
    const labels = net.labels.slice(0, LABELS_MOST).map(short);
    const layers = net.layers.map((layer) => ({ ...layer, name: short(layer.name) }));
    const { ram, ramLeast, pixels, values } = net;
    const formula = typeof metadata.input === "string" ? short(metadata.input) : "";
    return {
      handle: keep(net), size, version, crc, tensors, input, output, layers, labels, formula,
      arenaLeast, arenaSize, ram, ramLeast, pixels, values,
    };
  },

  close: (handle) => void kept.delete(handle),

  quantize: (handle, pixels) => kept.get(handle).quantizePixels(pixels),

  run(handle, values, show) {
    const net = kept.get(handle);
    const layers = [];
    const start = performance.now();
    const { output, best } = net.run(values, show ? (op, found) => { if (op < SHOWN) layers[op] = thinned(found, net.tensors[net.layers[op].output]); } : null);
    const milliseconds = timed(performance.now() - start, () => net.run(values));
    return { output: show ? null : output, best, real: net.dequantize(output.subarray(0, REAL_MOST)), layers, milliseconds };
  },

  classes(handle, inputs) {
    return each(this.id, inputs, (values) => kept.get(handle).run(values).best);
  },

  async layerSums(handle, values) {
    const sums = [];
    const crc32 = (await core).crc32.bind(await core);
    kept.get(handle).run(values, (op, found) => (sums[op] = crc32(new Uint8Array(found.buffer))));
    return sums;
  },

  learner: (handle, config) => keep(kept.get(handle).learner(config)),

  step(handle, inputs, labels, rateBits, rateBias) {
    const learner = kept.get(handle);
    learner.begin(inputs.length, rateBits, rateBias);
    let right;
    do right = each(this.id, inputs, (values, i) => learner.sample(values, labels[i]).predicted === labels[i]).filter(Boolean).length;
    while (learner.endPass());
    return { accuracy: right / inputs.length, flips: learner.flips, image: learner.image };
  },
};

addEventListener("message", async ({ data: { id, name, parameters } }) => {
  try {
    postMessage({ id, value: await calls[name].apply({ id }, parameters) });
  } catch (error) {
    const status = error instanceof FlipbitError ? error.status : "";
    const message = status ? error.message : `the core stopped: ${error.message}`;
    postMessage({ id, error: { status, message } });
  }
});
