// A board as a bench: connect, look, infer, verify, upload, learn, watch.
import { loadCore, packConfig } from "../core/flipbit.js";
import { inWords, softmax } from "./answer.js";
import { drawChart } from "./chart.js";
import { action, connected, log, say, showShare, toggle } from "./connected.js";
import { $, count, fillTiles, on } from "./elements.js";
import { call, PageNet } from "./engine.js";
import { forgotten, startGuarding, watch } from "./guarding.js";
import { lessons } from "./lessons.js";
import { BUILT_IN, Device } from "./link/device.js";
import { learningRefusal } from "./link/refused_learning.js";
import { startListening } from "./listening.js";
import { nets } from "./nets.js";
import { learningSettings, lessonInputs, lessonLabels, VALUES_DO_NOT_LEARN } from "./teach.js";
import { cameraRuns, currentInput, refresh, startCamera, stopCamera } from "./try.js";

const TRACE = 60; // frames

let connecting = false;

async function connect() {
  if (connecting || connected.device) return;
  connecting = true;
  $("board-connect").disabled = true;
  try {
    const port = await navigator.serial.requestPort().catch(() => null); // null: nothing was chosen
    if (port) await connectTo(port);
  } finally {
    connecting = false;
    $("board-connect").disabled = false;
  }
}

async function connectTo(port) {
  $("board-status").textContent = "Connecting…";
  try {
    await port.open({ baudRate: Number($("board-baud").value) || 115200 });
  } catch (error) {
    $("board-status").textContent = `Not connected: the port could not be opened. Is it open in another program or tab? (${error.message})`;
    return;
  }
  let board = null;
  try {
    const core = await loadCore();
    board = new Device(port, (bytes) => core.crc32(bytes), log);
    board.onLost = (why) => {
      board.close();
      if (connected.device !== board) return;
      disconnected();
      $("board-status").textContent = `Disconnected: ${why}`;
    };
    $("board-disconnect").hidden = false;
    connected.device = board;
    const info = await board.hello();
    $("board-connect").hidden = true;
    await follow(board, info);
    $("board-bench").hidden = false;
    await forgotten(board);
    $("board-status").textContent = `Connected to ${info.board}.`;
    if (document.activeElement === document.body) $("board-disconnect").focus({ preventScroll: true });
  } catch (error) {
    if (connected.device === board) disconnected();
    $("board-status").textContent = `Not connected: ${error.message}`;
    if (board) await board.close();
    else await port.close();
  }
}

async function disconnect() {
  const closing = connected.device;
  disconnected();
  $("board-status").textContent = "Disconnected.";
  await closing?.close();
}

function disconnected() {
  connected.device = null;
  showShare(null);
  $("board-connect").hidden = false;
  $("board-disconnect").hidden = true;
  $("board-bench").hidden = true;
}

/** Show what the board says about itself; the page takes the net that is on it. */
async function follow(board, given = null) {
  const info = given ?? (await board.info());
  connected.crc = info.hasModel ? info.modelCrc : 0;
  const slot = info.slot === BUILT_IN ? "built-in" : `slot ${info.slot}`;
  fillTiles($("board-facts"), [
    ["Board", info.board], ["Chip, core", `${info.chip}, ${info.core}`], ["Firmware", info.version],
    ["Clock", `${(info.clockHz / 1e6).toLocaleString("en")} MHz`], ["RAM, flash", `${count(info.ram)}, ${count(info.flash)} bytes`],
    ["Net", info.hasModel ? `${slot}, ${count(info.modelSize)} bytes, CRC ${info.modelCrc.toString(16).padStart(8, "0")}` : "none"],
    ["RAM for the net", `${count(info.ramFree)} bytes`], ["Slots", `${info.slots}, ${count(info.slotRoom)} bytes each`],
    ["Learning", info.learns ? "it has learned" : "as uploaded"],
  ]);
  if (info.hasModel && info.modelCrc !== nets.current.facts.crc) {
    const image = await board.readImage(info, showShare);
    showShare(null);
    await nets.open(`On the ${info.board}`, image);
  }
  return info;
}

function inputNow() {
  const input = currentInput();
  if (input) return input.values;
  const { size, zeroPoint } = nets.current.facts.input;
  return new Int8Array(size).fill(zeroPoint);
}

/** What compares the board with this browser needs the same net in both. */
function sameNet() {
  if (!connected.crc) throw new Error("The board has no net: upload this page's net first.");
  if (nets.current.facts.crc !== connected.crc) throw new Error("The board has another net than this page: upload this page's net first.");
}

async function inferOnce(board) {
  sameNet();
  const values = inputNow();
  const [there, here] = [await board.infer(values), await nets.current.call("run", values, false)];
  const same = there.output.length === here.output.length && there.output.every((value, i) => value === here.output[i]);
  const net = nets.current;
  const real = Array.from(there.output, (value) => Math.fround((value - net.facts.output.zeroPoint) * net.facts.output.scale));
  const score = net.givesValues ? null : softmax(real)[there.best];
  return { ...there, same, said: inWords(net, { real, best: there.best }), score, guarded: await watch(board) };
}

async function infer(board) {
  const { said, same, milliseconds, ticks, guarded } = await inferOnce(board);
  const timed = ticks ? `, ${count(ticks)} ticks` : "";
  say(`The board says ${said}${timed}, answered in ${milliseconds.toFixed(0)} ms; `
    + (same ? "every output is that of this browser." : "its outputs are NOT those of this browser.") + guarded);
}

async function stream(board, going) {
  sameNet();
  if (!nets.current.takesPictures) throw new Error("This net takes no pictures.");
  await startCamera();
  if (!cameraRuns()) throw new Error($("camera-note").textContent || "No camera.");
  const scores = [];
  let equal = 0;
  try {
    for (let frame = 1; going() && cameraRuns(); frame++) {
      await refresh();
      const result = await inferOnce(board);
      scores.push(result.score);
      equal += result.same;
      if (result.score === null) { // values: nothing to be sure of
        say(`Frame ${frame}: ${result.said}; ${equal} of ${frame} as in this browser.${result.guarded}`);
        continue;
      }
      const shown = scores.slice(-TRACE);
      const start = scores.slice(0, 10);
      const usual = start.reduce((a, b) => a + b, 0) / start.length;
      const now = scores.slice(-10);
      const mean = now.reduce((a, b) => a + b, 0) / now.length;
      drawChart($("board-trace"), [
        { name: "score of the best class", style: "a", values: shown },
        { name: "mean of the first ten", style: "c", values: shown.map(() => usual) },
      ], TRACE, "frame");
      const drift = mean < 0.7 * usual ? " It is less sure than at first: has the camera changed?" : "";
      say(`Frame ${frame}: ${result.said}; ${equal} of ${frame} as in this browser.${drift}${result.guarded}`);
    }
  } finally {
    stopCamera();
  }
}

async function verify(board) {
  sameNet();
  const values = inputNow();
  const { layers } = nets.current.facts;
  const [there, here] = [await board.layerSums(values, layers.length), await nets.current.call("layerSums", values)];
  const wrong = layers.find((_, i) => there[i] !== here[i]);
  say(wrong ? `Layer ${wrong.name} differs from this browser's.` : `All ${layers.length} layers are equal to this browser's, bit for bit.`);
}

async function upload(board) {
  const net = nets.current;
  const slot = await board.upload(net.bytes, net.facts.crc, showShare);
  await follow(board);
  await forgotten(board);
  say(`${net.name} is in slot ${slot} now, and in use.`);
}

/** The lessons of the page, step by step on the board; the same in this browser, to compare the bits. */
async function learn(board) {
  if (nets.current.givesValues) throw new Error(VALUES_DO_NOT_LEARN);
  if (!lessons.all.length) throw new Error("Add lessons under Teach first.");
  sameNet();
  const { config, steps, rateBits, rateBias } = learningSettings();
  const [inputs, labels] = [lessonInputs(), lessonLabels()];
  const [net, identity] = [nets.current, nets.identity];
  const opened = await board.openLearning(packConfig(config));
  if (opened.status) throw new Error(learningRefusal(opened));
  const learner = await net.call("learner", config);
  const marks = [];
  let twin = null;
  try {
    for (let step = 0; step < steps; step++) {
      const falling = 1 - step / steps;
      const there = await board.learnStep(step, inputs, labels, rateBits * falling, rateBias * falling, showShare);
      twin = await call("step", learner, inputs, labels, rateBits * falling, rateBias * falling);
      marks.push(there.accuracy);
      drawChart($("board-trace"), [{ name: "right, before each step", style: "a", values: marks }], steps);
      say(`Step ${step + 1} of ${steps}: ${count(there.flips)} bits flipped on the board, ${count(twin.flips)} here.`);
    }
  } finally {
    await call("close", learner);
  }
  showShare(null);
  const saved = await board.saveLearned().then(() => "saved in its flash", (error) => `not saved (${error.message})`);
  const learned = await PageNet.open(net.name, twin.image);
  const info = await board.info();
  const same = info.modelCrc === learned.facts.crc;
  if (same) nets.learned(identity, learned);
  await follow(board, info);
  await forgotten(board);
  say(`The board has learned in ${steps} steps, ${saved}; ${same ? "its bits are those of this browser." : "its bits are NOT those of this browser."}`);
}

async function forget(board) {
  await board.forget();
  await follow(board);
  await forgotten(board);
  say("The board has its net back as it was uploaded.");
}

async function reset(board) {
  await follow(board, await board.reset());
  await forgotten(board);
  say("The board has started anew.");
}

export function startBench() {
  const supported = "serial" in navigator;
  $("board-unsupported").hidden = supported;
  $("board-supported").hidden = !supported;
  on("board-connect", "click", connect);
  on("board-disconnect", "click", disconnect);
  action("board-infer", infer);
  action("board-verify", verify);
  action("board-upload", upload);
  action("board-learn", learn);
  action("board-forget", forget);
  action("board-reset", reset);
  const stopStreaming = toggle("board-stream", stream);
  document.addEventListener("tab", ({ detail }) => { if (detail !== "board") stopStreaming(); });
  startListening();
  startGuarding();
}
