// The board guards its net: it watches what it classifies, says how far that has drifted, and recalibrates itself.
import { drawChart } from "./chart.js";
import { action, connected, say } from "./connected.js";
import { $, count, percent } from "./elements.js";
import { PageNet } from "./engine.js";
import { hasReferences } from "./image.js";
import { learningRefusal } from "./link/refused_learning.js";
import { guardState, openGuard, startGuard, stopGuard } from "./link/guard.js";
import { RefusedError } from "./link/connection.js";
import { nets } from "./nets.js";

const TRACE = 60; // windows
let state = null; // of the guard, as last seen; null if none is on
let drifts = [];
let once = null; // steps before a recalibration that was asked for, and what comes after it

function settings() {
  const number = (id) => {
    const input = $(id);
    if (!input.checkValidity() || input.value === "") throw new Error(`${input.labels[0].textContent.trim()}: ${input.min} to ${input.max}`);
    return Number(input.value);
  };
  return { samples: number("guard-window"), threshold: $("guard-only-watch").checked ? null : number("guard-threshold") };
}

function show() {
  const on = Boolean(state?.on);
  $("guard-toggle").setAttribute("aria-pressed", String(on));
  if (!on) {
    $("guard-status").textContent = "The guard is off.";
    return;
  }
  const { samples, threshold } = settings();
  const drift = state.windows ? `Drift of the last window: ${percent(state.drift)}. ` : "";
  const now = once ? "Recalibrating: " : "";
  $("guard-status").textContent = `${now}${drift}${count(state.seen)} samples in this window of ${count(samples)}; `
    + `${count(state.windows)} windows, ${count(state.passes)} of them recalibrated; ${count(state.steps)} recalibrations done.`;
  if (!drifts.length) return $("guard-trace").replaceChildren();
  const shown = drifts.slice(-TRACE);
  const lines = [{ name: "drift", style: "a", values: shown }];
  if (threshold !== null) lines.push({ name: "threshold", style: "c", values: shown.map(() => threshold) });
  const top = Math.max(0.5, ...lines.flatMap(({ values }) => values));
  return drawChart($("guard-trace"), lines, Math.max(10, shown.length - 1), "window", Math.ceil(4 * top) / 4);
}

/** The page takes the net as the board has recalibrated it. */
async function takeNet(board) {
  const info = await board.info();
  const [net, identity] = [nets.current, nets.identity];
  const follows = net.facts.crc === connected.crc;
  connected.crc = info.modelCrc;
  if (follows && net.facts.crc !== info.modelCrc) nets.learned(identity, await PageNet.open(net.name, await board.readImage(info)));
}

/** After an input was classified: what the guard makes of it, in a sentence if it has done something. */
export async function watch(board) {
  if (!state?.on) return "";
  let told = "";
  const before = state;
  state = await guardState(board);
  if (state.windows > before.windows) drifts.push(state.drift);
  if (state.passes > before.passes) await takeNet(board);
  if (once && state.steps > once.steps) {
    const { goesOn } = once;
    once = null;
    if (goesOn) await begin(board);
    else await end(board);
    told = " The board has recalibrated its net, without labels.";
  } else if (state.steps > before.steps) told = " The board has recalibrated its net, as it had drifted.";
  show();
  return told;
}

async function open(board) {
  if (nets.current.facts.crc !== connected.crc) throw new Error("The board has another net than this page: upload this page's net first.");
  const opened = await openGuard(board);
  if (opened.status) throw new Error(learningRefusal(opened));
}

async function begin(board) {
  const { samples, threshold } = settings();
  await startGuard(board, samples, threshold);
  drifts = [];
  state = await guardState(board);
}

async function end(board) {
  await stopGuard(board);
  state = null;
}

async function toggleGuard(board) {
  once = null;
  if (state?.on) {
    await end(board);
    say("The guard is off; the net stays as it is.");
  } else {
    settings(); // says what is wrong with them before the board is asked
    await open(board);
    await begin(board);
    say("The guard is on: it watches what Infer and Stream send.");
  }
  show();
}

/** Recalibrate by the next windows, whatever their drift. */
async function recalibrate(board) {
  const goesOn = Boolean(state?.on) && !once;
  const { samples } = settings();
  if (!state?.on) await open(board);
  await startGuard(board, samples, 0);
  state = await guardState(board);
  once = { steps: state.steps, goesOn };
  show();
  say(`The board recalibrates by what it is given next: send it ${count(samples)} samples or more with Infer or Stream.`);
}

async function undo(board) {
  once = null;
  await stopGuard(board);
  await board.forget();
  await forgotten(board);
  await takeNet(board);
  say("Undone: the board has its net back as it was uploaded.");
}

/** The board is new, has started anew, or something has turned its guard off: what is it now? */
export async function forgotten(board) {
  drifts = [];
  once = null;
  state = null;
  if (hasReferences(nets.current.bytes)) {
    try {
      state = await guardState(board);
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error; // firmware without a guard, or a board that is locked
    }
  }
  show();
}

export function startGuarding() {
  action("guard-toggle", toggleGuard);
  action("guard-now", recalibrate);
  action("guard-undo", undo);
  nets.addEventListener("change", () => {
    const can = hasReferences(nets.current.bytes);
    $("guard-can").hidden = !can;
    $("guard-cannot").hidden = can;
  });
}
