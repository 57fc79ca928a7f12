// flipbit's C core in WebAssembly: runs and trains .fbit images, in browsers and in Node.
//
//     const core = await loadCore();
//     const net = core.open(bytes);                 // FlipbitError if the core refuses the image
//     const { output, best } = net.run(net.quantizePixels(pixels));
//     net.labels[best];
//
// Inputs are int8, plane by plane (channel, row, column), as on a device. Every net has a WebAssembly instance of its
// own: what one image does cannot reach another. flipbit.d.ts has the types, docs/browser.md the manual.

const ALIGN = 16; // of what is placed here; FB_ALIGN is 8
const aligned = (size) => Math.ceil(size / 8) * 8;
const PAGE = 65536;
const RATE_ONE = 1 << 20;
const CONFIG_SIZE = 16;
const NO_TENSOR = 0xffff;
const FLAG_RELU = 1, FLAG_BINARY = 2, FLAG_TRAINABLE = 8;

/** Names of the kinds of operations, by number: docs/fbit-format.md. */
export const KINDS = [
  "", "conv", "dense", "max_pool", "average_pool", "add", "shortcut", "relu", "flatten",
  "depthwise", "table", "concat", "", "binarize", "conv_bits", "max_pool_bits",
];

/** What the core's statuses mean, in words. */
export const REASONS = {
  FB_ERR_TRUNCATED: "the file is too short to be a .fbit image",
  FB_ERR_MAGIC: "this is not a .fbit image",
  FB_ERR_VERSION: "the image has a format version that this core does not know",
  FB_ERR_LENGTH: "the file's length is not the one the image states: it was cut off, or something was added",
  FB_ERR_CRC: "the image is damaged: its checksum does not match",
  FB_ERR_RESERVED: "a reserved field of the image is not 0",
  FB_ERR_TABLE: "the image's tables reach beyond its end",
  FB_ERR_INDEX: "the image names a tensor that does not exist, or uses one before it is written",
  FB_ERR_SHAPE: "shapes in the image do not agree",
  FB_ERR_SCALE: "a scale in the image is invalid",
  FB_ERR_METADATA: "the image's metadata has no place in it",
  FB_ERR_ALIGN: "an offset in the image is not aligned",
  FB_ERR_OFFSET: "weights or parameters lie outside the image",
  FB_ERR_KIND: "the image has an operation that this core does not know, or that learning cannot pass",
  FB_ERR_FLAGS: "an operation of the image has flags that do not belong to it",
  FB_ERR_WINDOW: "a kernel, stride or padding in the image is invalid",
  FB_ERR_SHIFT: "a shift in the image is out of range",
  FB_ERR_MULTIPLIER: "a multiplier in the image is out of range",
  FB_ERR_OVERFLOW: "sums in this net could exceed 32 bits",
  FB_ERR_LIVE: "the net keeps too many activations at a time",
  FB_ERR_ARENA: "the arena is too small for this net",
  FB_ERR_ARGUMENT: "nothing in that range can be trained, or a setting is out of range",
  FB_ERR_ORDER: "a call out of order",
  FB_ERR_STATE: "the learner's state is damaged, or belongs to another net or configuration",
};

export class FlipbitError extends Error {
  constructor(status, message) {
    super(message ?? REASONS[status] ?? status);
    this.name = "FlipbitError";
    this.status = status;
  }
}

/** The core, compiled. `source`: bytes or a URL of flipbit.wasm; by default the one beside this file. */
export async function loadCore(source = new URL("./flipbit.wasm", import.meta.url)) {
  return new Core(await WebAssembly.compile(await bytesOf(source)));
}

async function bytesOf(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return source;
  const url = new URL(source);
  if (url.protocol === "file:") return (await import("node:fs/promises")).readFile(url);
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
  return answer.arrayBuffer();
}

export class Core {
  constructor(module) {
    this.module = module;
    this._shared = new Instance(module);
  }

  get version() {
    return this._shared.text(this._shared.calls.version());
  }

  /** CRC-32 as in zlib, in .fbit images and in frames of the protocol. */
  crc32(bytes, crc = 0) {
    return this._shared.crc32(bytes, crc);
  }

  /** A net of an image's bytes, which are copied; throws FlipbitError if the core refuses it. */
  open(image) {
    return new Net(this.module, image);
  }
}

/** An instance of the module: its memory is handed out from the bottom up and never freed on its own. */
class Instance {
  constructor(module) {
    this.onLayer = null;
    const layer = (op, at, size) => this.onLayer?.(op, at, size);
    this.calls = new WebAssembly.Instance(module, { host: { layer } }).exports;
    this.end = this.calls.__heap_base.value;
  }

  /** Where `size` bytes are free. */
  place(size) {
    const at = Math.ceil(this.end / ALIGN) * ALIGN;
    this.reach(at + size);
    this.end = at + size;
    return at;
  }

  reach(end) {
    const missing = Math.ceil(end / PAGE) - this.calls.memory.buffer.byteLength / PAGE;
    if (missing <= 0) return;
    try {
      this.calls.memory.grow(missing);
    } catch {
      const megabytes = Math.ceil(end / 1e6).toLocaleString("en");
      throw new FlipbitError("FB_ERR_ARENA", `the net needs ${megabytes} MB of memory, more than it can have here`);
    }
  }

  /** Bytes of the memory; not valid any more after it has grown. */
  bytes(at, size) {
    return new Uint8Array(this.calls.memory.buffer, at, size);
  }

  numbers(at, count) {
    return new Uint32Array(this.calls.memory.buffer, at, count);
  }

  put(data) {
    const at = this.place(data.length);
    this.bytes(at, data.length).set(new Uint8Array(data.buffer, data.byteOffset, data.length));
    return at;
  }

  text(at) {
    if (!at) return "";
    const from = new Uint8Array(this.calls.memory.buffer, at);
    return new TextDecoder().decode(from.subarray(0, from.indexOf(0)));
  }

  check(status) {
    if (status) throw new FlipbitError(this.text(this.calls.status_name(status)));
  }

  crc32(bytes, crc) {
    const before = this.end;
    const at = this.put(bytes);
    this.end = before;
    return this.calls.crc32(crc, at, bytes.length) >>> 0;
  }
}

function openImage(module, image) {
  if (!(image instanceof Uint8Array)) throw new TypeError("an image is a Uint8Array");
  const instance = new Instance(module);
  const at = instance.put(image);
  instance.check(instance.calls.open(at, image.length));
  return [instance, at];
}

export class Net {
  constructor(module, image) {
    [this._instance, this._image] = openImage(module, image);
    this._module = module;
    this.size = image.length;
    const { calls } = this._instance;
    const [version, tensors, ops, input, output, crc, metaAt, metaSize, least, fast] = this._instance.numbers(
      calls.model_facts(), 10,
    );
    if (!fast) throw new FlipbitError("FB_ERR_LIVE");
    Object.assign(this, { version, crc, arenaLeast: least, arenaSize: fast, inputIndex: input, outputIndex: output });
    this.tensors = Array.from({ length: tensors }, (_, i) => this._tensor(i));
    this.input = this.tensors[input];
    this.output = this.tensors[output];
    this.metadata = parsedMetadata(this._instance.bytes(this._image + metaAt, metaSize));
    const { labels } = this.metadata;
    this.labels = Array.isArray(labels) ? labels.map(asText) : [];
    this.layers = this._layers(ops);
    this._inputAt = this._outputAt = this._arenaAt = 0;
  }

  /** The image as it was opened. */
  get image() {
    return this._instance.bytes(this._image, this.size).slice();
  }

  /** RAM of a RISC-V microcontroller that runs the net with its fastest kernels: arena, input and output. */
  get ram() {
    return this.arenaSize + aligned(this.input.size) + aligned(this.output.size);
  }

  get ramLeast() {
    return this.arenaLeast + aligned(this.input.size) + aligned(this.output.size);
  }

  _tensor(index) {
    const [height, width, channels, zero, rank, scaleBits, size] = this._instance.numbers(
      this._instance.calls.tensor_facts(index), 7,
    );
    const [scale] = new Float32Array(Uint32Array.of(scaleBits).buffer);
    return { height, width, channels, zeroPoint: zero | 0, rank: rank & 0x7f, bits: Boolean(rank & 0x80), scale, size };
  }

  _layers(count) {
    const names = Array.isArray(this.metadata.names) ? this.metadata.names : [];
    return Array.from({ length: count }, (_, index) => {
      const facts = Array.from(this._instance.numbers(this._instance.calls.op_facts(index, this.arenaSize), 18));
      const [kind, flags, input, input2, output, kernelH, kernelW, strideH, strideW] = facts;
      const [weights, weightsAt, weightsBytes, parametersAt, parametersBytes, , kernel, live, scratch] = facts.slice(9);
      const target = this.tensors[output];
      const layer = {
        index,
        name: (index < names.length && asText(names[index])) || `op${index}`,
        kind: KINDS[kind] || `kind ${kind}`,
        relu: Boolean(flags & FLAG_RELU),
        trainable: Boolean(flags & FLAG_TRAINABLE),
        inputs: input2 === NO_TENSOR ? [input] : [input, input2],
        output,
        kernel: [kernelH, kernelW],
        stride: [strideH, strideW],
        bits: weights ? (flags & FLAG_BINARY ? 1 : 8) : 0,
        weights, weightsAt, weightsBytes, parametersAt, parametersBytes,
        macs: weights * target.height * target.width,
        function: this._instance.text(kernel),
        live,
        scratch,
      };
      layer.description = described(layer);
      return layer;
    });
  }

  /** Take the memory that running needs; run() does it too. FlipbitError if there is not enough. */
  reserve() {
    if (this._arenaAt) return;
    this._inputAt = this._instance.place(this.input.size);
    this._outputAt = this._instance.place(this.output.size);
    this._arenaAt = this._instance.place(this.arenaSize);
  }

  /** Run the net. `onLayer(index, values)` gets a copy of each operation's output. */
  run(values, onLayer = null) {
    if (values.length !== this.input.size) {
      throw new FlipbitError("FB_ERR_ARGUMENT", `an input of ${values.length} values; the net takes ${this.input.size}`);
    }
    this.reserve();
    const { calls } = this._instance;
    new Int8Array(calls.memory.buffer, this._inputAt, this.input.size).set(values);
    this._instance.onLayer = onLayer
      ? (op, at, size) => onLayer(op, new Int8Array(calls.memory.buffer, at, size).slice())
      : null;
    this._instance.check(
      calls.invoke(this._arenaAt, this.arenaSize, this._inputAt, this._outputAt, onLayer ? 1 : 0),
    );
    const output = new Int8Array(calls.memory.buffer, this._outputAt, this.output.size).slice();
    return { output, best: argmax(output) };
  }

  /** Outputs as the real numbers they stand for. */
  dequantize(output) {
    return Array.from(output, (value) => Math.fround((value - this.output.zeroPoint) * this.output.scale));
  }

  /** Whether the outputs are values, as the image's metadata says it, and not scores of classes. */
  get values() {
    return this.metadata.output === "values";
  }

  /** The pixel formula of the image's metadata, or null. */
  get pixels() {
    return parsePixels(this.metadata.input);
  }

  /** Pixels 0 … 255, interleaved as in files (row, column, channel), to the net's input. */
  quantizePixels(pixels) {
    const formula = this.pixels;
    if (!formula) throw new FlipbitError("FB_ERR_ARGUMENT", "the image does not say how pixels become its input");
    if (pixels.length !== this.input.size) {
      throw new FlipbitError("FB_ERR_ARGUMENT", `${pixels.length} pixel values; the net takes ${this.input.size}`);
    }
    const table = pixelTable(formula, this.input);
    const { channels } = this.input;
    const plane = this.input.size / channels;
    const values = new Int8Array(this.input.size);
    for (let at = 0; at < plane; at++) {
      for (let c = 0; c < channels; c++) values[c * plane + at] = table[pixels[at * channels + c]];
    }
    return values;
  }

  /** A learner that starts from this net; the net itself stays as it is. */
  learner(config = {}, { arena = 0, state = null } = {}) {
    return new Learner(this._module, this.image, config, arena, state);
  }
}

/** A configuration of learning as bytes: docs/protocol.md. */
export function packConfig(config = {}) {
  const { seed = 1, rule = 0, bufferBits = 0, start = 0, bits = true, bias = false } = config;
  const { firstOp = 0, lastOp = 0xffff } = config;
  const packed = new DataView(new ArrayBuffer(CONFIG_SIZE));
  packed.setUint32(0, seed, true);
  [rule, bufferBits, start, (bits ? 1 : 0) | (bias ? 2 : 0)].forEach((value, i) => packed.setUint8(4 + i, value));
  packed.setUint16(8, firstOp, true);
  packed.setUint16(10, lastOp, true);
  return new Uint8Array(packed.buffer);
}

export class Learner {
  constructor(module, image, config, arena, state) {
    [this._instance, this._image] = openImage(module, image);
    const { calls } = this._instance;
    const facts = this._instance.numbers(calls.model_facts(), 5);
    const [, , , input, output] = Array.from(facts);
    this.inputSize = this._instance.numbers(calls.tensor_facts(input), 7)[6];
    this.outputSize = this._instance.numbers(calls.tensor_facts(output), 7)[6];
    this.size = image.length;
    this._instance.check(calls.train_configure(this._instance.put(packConfig(config))));
    this.stateSize = calls.train_state_size() >>> 0;
    this.arenaLeast = calls.train_arena_size(0) >>> 0;
    this.arenaFast = calls.train_arena_size(1) >>> 0;
    if (!this.arenaLeast) throw new FlipbitError("FB_ERR_LIVE");
    if (state && state.length !== this.stateSize) {
      throw new FlipbitError("FB_ERR_STATE", `a state of ${state.length} bytes; this learner's has ${this.stateSize}`);
    }
    this._input = this._instance.place(this.inputSize);
    this._state = this._instance.place(this.stateSize);
    if (state) this._instance.bytes(this._state, this.stateSize).set(state);
    this.arena = arena || this.arenaFast;
    const at = this._instance.place(this.arena);
    this._instance.check(calls.train_open(this._image, this.size, this._state, this.stateSize, at, this.arena));
  }

  /** The image as it is now: valid after every step. */
  get image() {
    return this._instance.bytes(this._image, this.size).slice();
  }

  /** What must be kept with the image to go on as if never stopped. */
  get state() {
    return this._instance.bytes(this._state, this.stateSize).slice();
  }

  get steps() {
    return this._instance.calls.train_steps() >>> 0;
  }

  get flips() {
    return this._instance.calls.train_flips() >>> 0;
  }

  begin(samples, rateBits = 0, rateBias = 0) {
    const rates = [rateBits, rateBias].map((rate) => fixedRate(rate));
    this._instance.check(this._instance.calls.train_begin(samples, ...rates));
  }

  /** One sample of the batch: the class predicted, and the loss in nats. */
  sample(values, label) {
    if (values.length !== this.inputSize) {
      throw new FlipbitError("FB_ERR_ARGUMENT", `a sample of ${values.length} values; the net takes ${this.inputSize}`);
    }
    const { calls } = this._instance;
    new Int8Array(calls.memory.buffer, this._input, this.inputSize).set(values);
    this._instance.check(calls.train_sample(this._input, label));
    return { predicted: calls.train_predicted(), loss: (calls.train_loss() >>> 0) / 65536 };
  }

  /** After all samples: whether the step needs another pass over them. */
  endPass() {
    const status = this._instance.calls.train_end_pass();
    if (status && this._instance.text(this._instance.calls.status_name(status)) === "FB_MORE") return true;
    this._instance.check(status);
    return false;
  }

  /** One update from the gradient of all samples. Accuracy and loss are from before it. */
  step(inputs, labels, rateBits = 0, rateBias = 0) {
    this.begin(inputs.length, rateBits, rateBias);
    let results;
    do results = inputs.map((values, i) => this.sample(values, labels[i]));
    while (this.endPass());
    const right = results.filter(({ predicted }, i) => predicted === labels[i]).length;
    const loss = results.reduce((sum, result) => sum + result.loss, 0) / results.length;
    return { accuracy: right / results.length, loss, flips: this.flips };
  }
}

/** A rate as the core takes it. Ties to even, as Python rounds. */
export function fixedRate(rate) {
  const scaled = rate * RATE_ONE;
  const low = Math.floor(scaled);
  const up = scaled - low > 0.5 || (scaled - low === 0.5 && low % 2 === 1);
  const fixed = low + (up ? 1 : 0);
  if (!(fixed >= 0 && fixed <= RATE_ONE)) throw new FlipbitError("FB_ERR_ARGUMENT", `a rate of ${rate}: 0 … 1`);
  return fixed;
}

/** The lowest index among the largest values. */
export function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

const NUMBER = String.raw`([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)`;
const FORMULA = new RegExp(String.raw`^\(pixel - ${NUMBER}\) ([*/]) ${NUMBER}$`);

/** `(pixel - OFFSET) * SCALE` or `/ DIVISOR`; null if it is another text. */
export function parsePixels(formula) {
  const found = FORMULA.exec(String(formula));
  if (!found) return null;
  const offset = Number(found[1]);
  const scale = found[2] === "*" ? Number(found[3]) : 1 / Number(found[3]);
  return Number.isFinite(offset) && Number.isFinite(scale) && scale !== 0 ? { offset, scale } : null;
}

/** The int8 input of each of the 256 values a pixel may have: nearest, ties away from zero, saturated. */
export function pixelTable({ offset, scale }, tensor) {
  return Int8Array.from({ length: 256 }, (_, pixel) => {
    const scaled = ((pixel - offset) * scale) / tensor.scale;
    const rounded = Math.sign(scaled) * Math.floor(Math.abs(scaled) + 0.5);
    return Math.max(-128, Math.min(127, rounded + tensor.zeroPoint));
  });
}

function parsedMetadata(bytes) {
  try {
    const found = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    return found && typeof found === "object" && !Array.isArray(found) ? found : {};
  } catch {
    return {};
  }
}

/** A label or a name as text; what is no text, number or the like has none. */
const asText = (value) => (typeof value === "object" ? "" : String(value));

/** An operation in a few words: 3×3 conv /2 + ReLU. */
function described({ kind, kernel, stride, relu }) {
  const size = kernel[0] ? `${kernel[0]}×${kernel[1]} ` : "";
  const [down, across] = stride;
  const step = Math.max(down, across) > 1 ? ` /${down === across ? down : `${down}×${across}`}` : "";
  return `${size}${kind.replaceAll("_", " ")}${step}${relu ? " + ReLU" : ""}`;
}
