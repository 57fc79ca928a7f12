// What flipbit.js really has, by the names that flipbit.d.ts gives to it. Arguments: the module, an image.
import { readFileSync } from "node:fs";

const flipbit = await import(process.argv[2]);
const core = await flipbit.loadCore();
const net = core.open(readFileSync(process.argv[3]));
const learner = net.learner({ bits: true, bias: true });
const values = new Int8Array(net.input.size);

/** Public members of an object and of its class. */
function members(thing) {
  const own = Object.keys(thing);
  const shared = Object.getPrototypeOf(thing) === Object.prototype ? [] : Object.getOwnPropertyNames(Object.getPrototypeOf(thing));
  return [...own, ...shared].filter((name) => !name.startsWith("_") && name !== "constructor").sort();
}

console.log(JSON.stringify({
  exports: Object.keys(flipbit).sort(),
  Core: members(core), Net: members(net), Learner: members(learner), Tensor: members(net.input), Layer: members(net.layers[0]),
  Outcome: members(net.run(values)), PixelFormula: members(net.pixels), Step: members(learner.step([values], [0], 0.01, 0.1)),
}));
