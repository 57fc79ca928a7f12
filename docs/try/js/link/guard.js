// A board's guard: it watches what it classifies, and recalibrates without labels. runtime/link/guard.py is the same in
// Python.
import { SLOW } from "./connection.js";
import { COMMANDS, pack, words } from "./frames.js";

const ONE = 2 ** 16; // 16 fractional bits
const NEVER = 0xffffffff; // a threshold that no drift exceeds
export const PRIOR = 250; // samples that the net's own values count as

/** A configuration of learning that recalibrates and nothing else: docs/protocol.md. */
const recalibrating = () => pack("I", 1, "B", 0, "B", 0, "B", 0, "B", 0, "H", 0, "H", 0xffff, "B", 1, "B", 0, "H", PRIOR);

/** Let the net in use be recalibrated, going on from what it has learned; what the board says about it. */
export const openGuard = (device) => device.openLearning(recalibrating(), { resume: true });

/** Watch windows of so many samples. A threshold of 0 recalibrates by the next ones, null never. */
export async function startGuard(device, samples, threshold) {
  const limit = threshold === null ? NEVER : Math.round(threshold * ONE);
  await device.request(COMMANDS.LEARN_GUARD, pack("I", samples, "I", limit), { timeout: SLOW });
}

/** Watch no more; the net stays as it is. */
export async function stopGuard(device) {
  await device.request(COMMANDS.LEARN_GUARD, new Uint8Array(8));
}

export async function guardState(device) {
  const [on, drift, settled, seen, windows, passes, steps] = words(await device.request(COMMANDS.LEARN_DRIFT), 7);
  return { on: Boolean(on), drift: drift / ONE, settled: settled / ONE, seen, windows, passes, steps };
}
