// What the core in WebAssembly says to the jobs of a test: the same file for Node and for a browser.

const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

export function answers(core, jobs) {
  return jobs.map((job) => {
    try {
      return { inspect, reserve, run, learn, crc }[job.what](core, job);
    } catch (error) {
      if (error.name !== "FlipbitError") throw error;
      return { error: error.status, message: error.message };
    }
  });
}

function inspect(core, { image }) {
  const net = core.open(fromBase64(image));
  const { size, version, crc, labels, tensors, layers, arenaLeast, arenaSize, ram, ramLeast } = net;
  return { ramLeast, size, version, crc, labels, tensors, layers, arenaLeast, arenaSize, ram, pixels: net.pixels };
}

function reserve(core, { image }) {
  core.open(fromBase64(image)).reserve();
}

// Outputs for every input, and the CRC-32 of every layer's output.
function run(core, { image, inputs, pixels }) {
  const net = core.open(fromBase64(image));
  return inputs.map((text) => {
    const bytes = fromBase64(text);
    const values = pixels ? net.quantizePixels(bytes) : new Int8Array(bytes.buffer);
    const layers = [];
    const { output, best } = net.run(values, (op, found) => {
      layers[op] = core.crc32(new Uint8Array(found.buffer));
    });
    const quick = net.run(values).output;
    if (quick.join() !== output.join()) throw new Error("a net that is watched gives other values");
    return { output: Array.from(output), best, layers, real: net.dequantize(output) };
  });
}

// Some steps; then, from the state after the first, the others again.
function learn(core, { image, inputs, labels, config, rates, arena }) {
  const net = core.open(fromBase64(image));
  const samples = inputs.map((text) => new Int8Array(fromBase64(text).buffer));
  let learner = net.learner(config, { arena });
  const sizes = { stateSize: learner.stateSize, arenaLeast: learner.arenaLeast, arenaFast: learner.arenaFast };
  const steps = rates.map(([bits, bias], i) => {
    const step = learner.step(samples, labels, bits, bias);
    if (i === 0) learner = core.open(learner.image).learner(config, { arena, state: learner.state });
    return step;
  });
  return { steps, ...sizes, image: core.crc32(learner.image), state: core.crc32(learner.state), done: learner.steps };
}

function crc(core, { bytes }) {
  return core.crc32(fromBase64(bytes));
}
