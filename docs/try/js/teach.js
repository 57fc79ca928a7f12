// Lessons, learning, undo: bits flip layer by layer, and accuracy is measured after every step.
import { showBits, totalBits, totalFlips } from "./bits.js";
import { drawChart } from "./chart.js";
import { $, count, guarded, make, on, percent } from "./elements.js";
import { call, PageNet } from "./engine.js";
import { lessons } from "./lessons.js";
import { nets } from "./nets.js";
import { Pad } from "./pad.js";
import { paintPixels } from "./pictures.js";
import { drawnPixels } from "./strokes.js";

const DIM = 0.35, DIM_LESSONS = 80; // as flipbit finetune --drift dim:2
const PAUSE = 120; // milliseconds between steps, to see them
const MOST = 500; // lessons

export const VALUES_DO_NOT_LEARN = "This net gives values, not classes: it is trained on a computer, a device cannot teach it.";

const pad = new Pad($("teach-pad"));
const records = new Map(); // by net: { first, undone }, where it began and what can be gone back to
let record = null, learning = false, stopping = false;
let held = null; // digits that are only measured on: { values, dimmed, labels }

export const lessonInputs = () => lessons.all.map(({ values }) => values);
export const lessonLabels = () => lessons.all.map(({ label }) => label);

export function learningSettings() {
  const what = $("learn-what").value;
  const number = (id) => {
    const input = $(id);
    const value = Number(input.value);
    if (!input.checkValidity() || input.value === "") {
      throw new Error(`${input.labels[0].textContent.trim()}: ${input.min} to ${input.max}`);
    }
    return value;
  };
  const bufferBits = number("learn-buffer");
  return {
    config: { seed: 1, bits: what !== "bias", bias: what !== "bits", bufferBits, start: (1 << bufferBits) >> 2 },
    steps: number("learn-steps"),
    rateBits: what === "bias" ? 0 : number("learn-rate"),
    rateBias: what === "bits" ? 0 : number("learn-bias"),
  };
}

async function heldBack(net) {
  if (!net.isDigits) return null;
  if (!held) {
    const digits = (await nets.digits()).slice(DIM_LESSONS);
    const quantize = (pixels) => net.call("quantize", pixels);
    held = {
      labels: digits.map(({ label }) => label),
      values: await Promise.all(digits.map(({ pixels }) => quantize(pixels))),
      dimmed: await Promise.all(digits.map(({ pixels }) => quantize(dimmed(pixels)))),
    };
  }
  return held;
}

const dimmed = (pixels) => pixels.map((value) => Math.round(value * DIM));

const share = (found, labels) => found.filter((value, i) => value === labels[i]).length / labels.length;

/** Accuracy on the lessons, and on digits that are no lessons. */
async function measure(net) {
  const marks = { lessons: share(await net.call("classes", lessonInputs()), lessonLabels()) };
  const others = await heldBack(net);
  if (others) {
    marks.standard = share(await net.call("classes", others.values), others.labels);
    if (lessons.dim) marks.dim = share(await net.call("classes", others.dimmed), others.labels);
  }
  return marks;
}

const LINES = [
  { mark: "lessons", name: "its lessons", style: "a" },
  { mark: "dim", name: "other dim digits", style: "b" },
  { mark: "standard", name: "usual digits", style: "c" },
];

function chart(marks, steps) {
  const lines = LINES.filter(({ mark }) => mark in marks[0]);
  drawChart($("chart"), lines.map(({ mark, name, style }) => ({ name, style, values: marks.map((one) => one[mark]) })), steps);
}

const inWords = (marks) => LINES.filter(({ mark }) => mark in marks).map(({ mark, name }) => `${name} ${percent(marks[mark])}`).join(", ");

async function learn() {
  if (learning) return;
  const { config, steps, rateBits, rateBias } = learningSettings();
  const [start, identity, was] = [nets.current, nets.identity, record];
  const [inputs, labels] = [lessonInputs(), lessonLabels()];
  begin();
  try {
    const marks = [await measure(start)];
    const learner = await start.call("learner", config);
    let now = start;
    chart(marks, steps);
    for (let step = 0; step < steps && !stopping; step++) {
      const falling = 1 - step / steps;
      const { image, flips } = await call("step", learner, inputs, labels, rateBits * falling, rateBias * falling);
      const next = await PageNet.open(start.name, image);
      if (record === was) showBits($("bits"), next, was.first.bytes, now.bytes, image);
      if (now !== start) now.close();
      now = next;
      if (record !== was) { // another net has been chosen: its lessons are others
        stopping = true;
        continue;
      }
      marks.push(await measure(now));
      chart(marks, steps);
      $("learn-status").textContent = `Step ${step + 1} of ${steps}: ${count(flips)} bits flipped. Right: ${inWords(marks.at(-1))}.`;
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) await new Promise((done) => setTimeout(done, PAUSE));
    }
    await call("close", learner);
    was.undone.push(start);
    nets.learned(identity, now);
    if (record !== was) return;
    showBits($("bits"), now, record.first.bytes, start.bytes, now.bytes);
    const flips = totalFlips(now, start.bytes, now.bytes);
    $("learn-status").textContent = `${count(flips)} of ${count(totalBits(now))} bits have flipped. `
      + `Right before: ${inWords(marks[0])}. Now: ${inWords(marks.at(-1))}.`;
  } finally {
    end();
  }
}

function begin() {
  learning = true;
  stopping = false;
  buttons();
}

function end() {
  learning = false;
  buttons();
}

function buttons() {
  $("learn").disabled = learning || !lessons.all.length;
  $("learn-stop").hidden = !learning;
  $("learn-undo").disabled = learning || !record?.undone.length;
  $("learn-save").disabled = learning || !record?.undone.length;
  for (const id of ["teach-add", "teach-dim", "lessons-clear"]) $(id).disabled = learning;
}

function undo() {
  const before = record.undone.pop();
  const was = nets.current;
  nets.replace(before);
  showBits($("bits"), before, record.first.bytes, was.bytes, before.bytes);
  $("learn-status").textContent = record.undone.length ? "Undone: the net is as before the last learning." : "Undone: the net is as it was at first.";
  $("chart").replaceChildren();
  buttons();
}

function save() {
  const url = URL.createObjectURL(new Blob([nets.current.bytes], { type: "application/octet-stream" }));
  const link = make("a", { href: url, download: `${nets.key}-taught.fbit` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

async function addDrawing() {
  if (pad.empty) throw new Error("Draw something on the pad first.");
  const net = nets.current;
  const pixels = drawnPixels(pad.strokes, net.facts.input.width);
  const label = Number(document.querySelector("input[name=teach-class]:checked").value);
  const { identity } = nets;
  pad.clear(); // at once: the next drawing may begin before the core has answered
  const values = await net.call("quantize", pixels);
  if (nets.identity !== identity) return; // it is for another net
  if (lessons.dim) lessons.clear();
  lessons.add({ pixels, values, label });
}

async function addDim() {
  const [net, identity] = [nets.current, nets.identity];
  const digits = (await nets.digits()).slice(0, DIM_LESSONS);
  const made = await Promise.all(digits.map(async ({ pixels, label }) => {
    const dark = dimmed(pixels);
    return { pixels: dark, values: await net.call("quantize", dark), label };
  }));
  if (nets.identity !== identity) return;
  lessons.clear();
  lessons.dim = true;
  lessons.add(...made);
}

function showLessons() {
  const net = nets.current;
  const { all } = lessons;
  if (all.length > MOST) {
    lessons.remove(all[0]);
    return;
  }
  $("lessons-title").textContent = all.length ? `${all.length} lesson${all.length > 1 ? "s" : ""}` : "No lessons yet";
  $("lessons-clear").hidden = !all.length;
  const place = [...$("lessons").querySelectorAll("button")].indexOf(document.activeElement);
  $("lessons").replaceChildren(...all.map((lesson) => {
    const canvas = make("canvas");
    paintPixels(canvas, lesson.pixels, net.facts.input);
    const button = make("button", { type: "button", title: "Remove" }, canvas, net.label(lesson.label));
    button.setAttribute("aria-label", `Remove this lesson: ${net.label(lesson.label)}`);
    button.addEventListener("click", () => { if (!learning) lessons.remove(lesson); });
    return make("li", {}, button);
  }));
  buttons();
  if (place < 0) return;
  const left = $("lessons").querySelectorAll("button");
  (left[Math.min(place, left.length - 1)] ?? $("teach-pad")).focus({ preventScroll: true });
}

function elsewhere(net) {
  if (net.givesValues) return VALUES_DO_NOT_LEARN;
  if (net.takesPictures) return "Add pictures of this net's classes under Try: choose the right class there and press “Add to its lessons”.";
  return "This net takes no pictures, so lessons cannot be given here: flipbit finetune lets it learn from recordings or numbers.";
}

function showClasses(net) {
  $("teach-classes").replaceChildren(...net.classes(40).map((name, value) => {
    const radio = make("input", { type: "radio", name: "teach-class", value, checked: value === 0 });
    return make("label", {}, radio, make("span", { textContent: name }));
  }));
}

function followNet() {
  const net = nets.current;
  for (const key of records.keys()) if (key.startsWith("own") && key !== nets.identity && nets.key === "own") records.delete(key); // a file before this one
  if (!records.has(nets.identity)) records.set(nets.identity, { first: net, undone: [] });
  if (records.get(nets.identity) !== record) {
    record = records.get(nets.identity);
    $("chart").replaceChildren();
    $("learn-status").textContent = record.undone.length ? "It has learned before." : "Nothing learned yet.";
    showBits($("bits"), net, record.first.bytes, net.bytes, net.bytes);
    showClasses(net); // not whenever it has learned: the class that was chosen stays
  }
  const draws = net.draws && !net.givesValues;
  $("teach-draw").hidden = !draws;
  $("teach-elsewhere").hidden = draws;
  $("teach-elsewhere").textContent = elsewhere(net);
  $("teach-dim").hidden = !net.isDigits;
  buttons();
}

export function startTeach() {
  on("teach-add", "click", addDrawing);
  pad.addEventListener("enter", guarded(addDrawing));
  on("teach-pad-clear", "click", () => pad.clear());
  on("teach-dim", "click", addDim);
  on("lessons-clear", "click", () => lessons.clear());
  on("learn", "click", learn);
  on("learn-stop", "click", () => { stopping = true; });
  on("learn-undo", "click", undo);
  on("learn-save", "click", save);
  lessons.addEventListener("change", showLessons);
  nets.addEventListener("change", followNet);
}
