// Everything that flipbit.d.ts declares, used: the compiler says whether the types fit, Node whether the values do.
import { readFileSync } from "node:fs";
import {
  argmax, fixedRate, FlipbitError, KINDS, loadCore, packConfig, parsePixels, pixelTable, REASONS,
} from "flipbit";
import type { Core, Layer, Learner, LearnerConfig, Net, Outcome, PixelFormula, Step, Tensor } from "flipbit";

const image: Uint8Array = readFileSync(process.argv[2]!);
const core: Core = await loadCore();
const net: Net = core.open(image);
net.reserve();

const numbers: number[] = [
  core.crc32(image), core.crc32(image, 1), net.size, net.version, net.crc, net.arenaSize, net.arenaLeast, net.ram, net.ramLeast,
  net.inputIndex, net.outputIndex,
  fixedRate(0.5), argmax([1, 3, 2]), KINDS.length,
];
const texts: string[] = [core.version, REASONS["FB_ERR_CRC"]!, ...net.labels, ...KINDS];

function ofTensor({ height, width, channels, rank, scale, zeroPoint, bits, size }: Tensor): number[] {
  const packed: boolean = bits;
  return [height, width, channels, rank, scale, zeroPoint, size, Number(packed)];
}
numbers.push(...ofTensor(net.input), ...ofTensor(net.output), ...net.tensors.flatMap(ofTensor));

for (const layer of net.layers) {
  const one: Layer = layer;
  const [high, wide]: readonly [number, number] = one.kernel;
  const flags: boolean[] = [one.relu, one.trainable];
  texts.push(one.name, one.kind, one.description, one.function);
  numbers.push(
    one.index, ...one.inputs, one.output, high, wide, ...one.stride, one.bits, one.weights, one.weightsAt, one.weightsBytes,
    one.parametersAt, one.parametersBytes, one.macs, one.live, one.scratch, ...flags.map(Number),
  );
}

const formula: PixelFormula | null = net.pixels;
if (formula) numbers.push(...pixelTable(formula, net.input), formula.offset, formula.scale);
if (parsePixels("(pixel - 128) * 0.5")?.scale !== 0.5) throw new Error("parsePixels");
const values: Int8Array = net.quantizePixels(new Uint8Array(net.input.size));
const outcome: Outcome = net.run(values, (index: number, found: Int8Array) => { numbers.push(index, found.length); });
numbers.push(outcome.best, ...net.dequantize(outcome.output));
const metadata: unknown = net.metadata["labels"];
if (!Array.isArray(metadata)) throw new Error("metadata");

const config: LearnerConfig = { seed: 1, rule: 0, bufferBits: 0, start: 0, bits: true, bias: true, firstOp: 0, lastOp: 0xffff };
numbers.push(...packConfig(config));
const learner: Learner = net.learner(config);
const step: Step = learner.step([values], [0], 0.005, 0.5);
learner.begin(1, 0.01);
const { predicted, loss }: { predicted: number; loss: number } = learner.sample(values, 1);
const more: boolean = learner.endPass();
numbers.push(
  step.accuracy, step.loss, step.flips, predicted, loss, Number(more), learner.size, learner.stateSize, learner.arena, learner.arenaLeast,
  learner.arenaFast, learner.inputSize, learner.outputSize, learner.steps, learner.flips,
);
const again: Learner = net.learner(config, { arena: learner.arenaFast, state: learner.state });
const images: Uint8Array[] = [net.image, learner.image, again.image, learner.state];

let refused = "";
try {
  core.open(image.subarray(0, 40));
} catch (error) {
  if (error instanceof FlipbitError) refused = error.status;
}
texts.push(refused);

const module: WebAssembly.Module = core.module;
if (!(module instanceof WebAssembly.Module)) throw new Error("module");
if (images.some((bytes) => !(bytes instanceof Uint8Array))) throw new Error("images");
if (numbers.some((value) => typeof value !== "number" || Number.isNaN(value))) throw new Error(`numbers ${numbers}`);
if (texts.some((text) => typeof text !== "string")) throw new Error(`texts ${texts}`);
// @ts-expect-error: what a net says of itself cannot be set
if (numbers.length < 0) net.size = 3;
// @ts-expect-error: a picture is no array of texts
if (numbers.length < 0) net.quantizePixels(["a"]);
console.log(`${numbers.length} numbers, ${texts.length} texts, refused with ${refused}`);
