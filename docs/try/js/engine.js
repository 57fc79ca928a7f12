// The page's way to the core, which runs in a worker. What takes too long is stopped, and a new worker takes over.
import { FlipbitError } from "../core/flipbit.js";
import { frontEndOf } from "./image.js";

const PATIENCE = 20_000; // milliseconds
const LARGEST = 64 << 20; // bytes of a file that is worth reading

let worker = null;
let timer = 0;
let generation = 0; // of workers: handles of earlier ones mean nothing
let ids = 0;
const waiting = new Map();

function start() {
  generation += 1;
  worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  worker.addEventListener("message", ({ data: { id, value, error, alive } }) => {
    clearTimeout(timer);
    const answer = waiting.get(id);
    if (answer && !alive) {
      waiting.delete(id);
      if (error) answer.reject(new FlipbitError(error.status, error.message));
      else answer.resolve(value);
    }
    if (waiting.size) watch();
  });
  worker.addEventListener("error", () => stop("the core could not be started: is this browser older than 2023?"));
}

/** Calls wait for each other: the time runs anew whenever one is done, or says that it has come further. */
function watch() {
  clearTimeout(timer);
  timer = setTimeout(() => stop(`the net ran for ${PATIENCE / 1000} s without an end and was stopped`), PATIENCE);
}

function stop(message) {
  worker.terminate();
  worker = null; // the next call starts another
  generation += 1;
  clearTimeout(timer);
  for (const { reject } of waiting.values()) reject(new FlipbitError("", message));
  waiting.clear();
}

export function call(name, ...parameters) {
  if (!worker) start();
  return new Promise((resolve, reject) => {
    const id = ++ids;
    if (!waiting.size) watch();
    waiting.set(id, { resolve, reject });
    worker.postMessage({ id, name, parameters });
  });
}

/** A net: its bytes, and what the core says about them. */
export class PageNet {
  constructor(name, bytes, facts) {
    this.mayTakeLong = false; // the user has been asked
    Object.assign(this, { name, bytes, facts, handle: facts.handle, generation });
  }

  /** Throws FlipbitError if the core refuses the image. */
  static async open(name, bytes) {
    return new PageNet(name, bytes, await call("open", bytes));
  }

  async call(name, ...parameters) {
    if (this.generation !== generation) {
      this.handle = (await call("open", this.bytes)).handle;
      this.generation = generation;
    }
    return call(name, this.handle, ...parameters);
  }

  close() {
    if (this.generation === generation) call("close", this.handle);
  }

  label(index) {
    return (this.facts.labels[index] || String(index)).slice(0, 60);
  }

  /** Names of the classes, of so many: a stranger's net may have millions. */
  classes(most = 1000) {
    return Array.from({ length: Math.min(most, this.facts.output.size) }, (_, i) => this.label(i));
  }

  /** Roughly how long a run takes here. Layers of bits look sums up in tables; others multiply one by one. */
  get seconds() {
    const { layers, tensors } = this.facts;
    return layers.reduce((sum, { bits, macs, kernel, output }) => {
      if (bits) return sum + macs / (bits === 1 ? 1e10 : 5e8);
      return sum + (tensors[output].size * Math.max(1, kernel[0] * kernel[1])) / 2e8;
    }, 0);
  }

  /** Whether its outputs are values, not scores of classes: the image says so, or there is nothing to choose from. */
  get givesValues() {
    return this.facts.values || this.facts.output.size === 1;
  }

  /** How recordings become its input; null for other nets. */
  get frontEnd() {
    return frontEndOf(this.bytes);
  }

  /** Whether it reads pictures whose pixels it says how to take. */
  get takesPictures() {
    const { input, pixels } = this.facts;
    return !this.frontEnd && input.rank === 3 && Boolean(pixels) && (input.channels === 1 || input.channels === 3);
  }

  /** Whether it reads what is drawn on a square pad. */
  get draws() {
    const { input } = this.facts;
    return this.takesPictures && input.channels === 1 && input.width === input.height && input.width <= 512;
  }

  get isDigits() {
    const { input, labels } = this.facts;
    return input.size === 64 && input.height === 8 && input.channels === 1 && labels.join() === "0,1,2,3,4,5,6,7,8,9";
  }
}

/** The bytes of a file a user gave. */
export async function readFile(file) {
  if (file.size > LARGEST) {
    const megabytes = Math.round(file.size / 1e6).toLocaleString("en");
    throw new FlipbitError("", `${file.name} has ${megabytes} MB; a .fbit image has kilobytes, and more than 64 MB is not read`);
  }
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch {
    throw new FlipbitError("", `${file.name} could not be read: is it a folder, or gone?`);
  }
}
