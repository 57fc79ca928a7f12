/** flipbit's C core in WebAssembly. Inputs and outputs are int8, plane by plane: channel, row, column. */

export const KINDS: readonly string[];
export const REASONS: Readonly<Record<string, string>>;

/** What the core refuses; `status` is its name for the reason, such as `FB_ERR_CRC`. */
export class FlipbitError extends Error {
  readonly status: string;
  constructor(status: string, message?: string);
}

export interface Tensor {
  readonly height: number;
  readonly width: number;
  readonly channels: number;
  /** 3 for an image, 1 for a vector. */
  readonly rank: number;
  /** value = scale · (int8 − zeroPoint) */
  readonly scale: number;
  readonly zeroPoint: number;
  /** Whether its values are ±1, packed: u16 words [channels / 16][height][width], the first channel lowest. */
  readonly bits: boolean;
  /** Bytes; of int8, as many as values. */
  readonly size: number;
}

export interface Layer {
  readonly index: number;
  readonly name: string;
  readonly kind: string;
  /** In a few words: `3×3 conv /2 + ReLU`. */
  readonly description: string;
  readonly relu: boolean;
  readonly trainable: boolean;
  /** Numbers of tensors. */
  readonly inputs: readonly number[];
  readonly output: number;
  readonly kernel: readonly [number, number];
  readonly stride: readonly [number, number];
  /** Bits per weight: 1, 8, or 0 without weights. */
  readonly bits: number;
  readonly weights: number;
  /** Where weights and parameters lie in the image, and how many bytes they take. */
  readonly weightsAt: number;
  readonly weightsBytes: number;
  readonly parametersAt: number;
  readonly parametersBytes: number;
  /** Multiply-accumulates for one input. */
  readonly macs: number;
  /** The C function that computes it; empty where there is nothing to do. */
  readonly function: string;
  /** Bytes of activations while it runs, and of tables and sums besides. */
  readonly live: number;
  readonly scratch: number;
}

export interface Outcome {
  readonly output: Int8Array;
  /** Index of the largest output, the lowest among equals. */
  readonly best: number;
}

export interface PixelFormula {
  readonly offset: number;
  readonly scale: number;
}

export interface LearnerConfig {
  seed?: number;
  rule?: number;
  /** 0 … 8 bits kept beside each weight's bit. */
  bufferBits?: number;
  /** Where buffers start, below 2^bufferBits. */
  start?: number;
  /** Whether bits flip. */
  bits?: boolean;
  /** Whether biases move. */
  bias?: boolean;
  firstOp?: number;
  lastOp?: number;
}

export interface Step {
  /** Over the samples, before the update. */
  readonly accuracy: number;
  readonly loss: number;
  /** Bits that changed sign. */
  readonly flips: number;
}

export class Core {
  readonly module: WebAssembly.Module;
  readonly version: string;
  constructor(module: WebAssembly.Module);
  crc32(bytes: Uint8Array, crc?: number): number;
  open(image: Uint8Array): Net;
}

export class Net {
  /** Bytes of the image, and a copy of them. */
  readonly size: number;
  readonly image: Uint8Array;
  readonly version: number;
  readonly crc: number;
  readonly tensors: readonly Tensor[];
  readonly input: Tensor;
  readonly output: Tensor;
  /** Their numbers among the tensors. */
  readonly inputIndex: number;
  readonly outputIndex: number;
  readonly layers: readonly Layer[];
  readonly labels: readonly string[];
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Bytes with which every layer runs its fastest kernel, and the least. */
  readonly arenaSize: number;
  readonly arenaLeast: number;
  /** The same with input and output: the RAM of a RISC-V microcontroller. */
  readonly ram: number;
  readonly ramLeast: number;
  readonly pixels: PixelFormula | null;
  /** Whether the outputs are values (`dequantize`), and not scores of classes. */
  readonly values: boolean;
  /** Takes the memory that running needs; `run` does it too. */
  reserve(): void;
  run(values: Int8Array, onLayer?: ((index: number, values: Int8Array) => void) | null): Outcome;
  dequantize(output: Int8Array): number[];
  quantizePixels(pixels: ArrayLike<number>): Int8Array;
  learner(config?: LearnerConfig, options?: { arena?: number; state?: Uint8Array | null }): Learner;
}

export class Learner {
  readonly size: number;
  readonly image: Uint8Array;
  readonly state: Uint8Array;
  readonly stateSize: number;
  readonly arena: number;
  readonly arenaLeast: number;
  readonly arenaFast: number;
  readonly inputSize: number;
  readonly outputSize: number;
  readonly steps: number;
  readonly flips: number;
  begin(samples: number, rateBits?: number, rateBias?: number): void;
  sample(values: Int8Array, label: number): { predicted: number; loss: number };
  endPass(): boolean;
  step(inputs: readonly Int8Array[], labels: readonly number[], rateBits?: number, rateBias?: number): Step;
}

export function loadCore(source?: URL | string | BufferSource): Promise<Core>;
export function packConfig(config?: LearnerConfig): Uint8Array;
export function fixedRate(rate: number): number;
export function argmax(values: ArrayLike<number>): number;
export function parsePixels(formula: unknown): PixelFormula | null;
export function pixelTable(formula: PixelFormula, tensor: Tensor): Int8Array;
