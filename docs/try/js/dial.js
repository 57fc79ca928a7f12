// SR with some buffer bits, and BC, side by side on the toy problem.
import { $, count, percent } from "./elements.js";
import { BEST, Chain, DELTA, loss } from "./toy.js";

const STEPS = 400_000, PER_FRAME = 8_000;
const RATES = [1, 0.1, 0.01, 0.001];
const [LOW, HIGH] = [-2.5, 7.5];
let chains = null, running = false, visible = false;

function settings() {
  return {
    bufferBits: Number($("dial-bits").value),
    batch: 2 ** Number($("dial-batch").value),
    rate: RATES[Number($("dial-rate").value)],
    noise: Number($("dial-noise").value) / 2,
  };
}

function restart() {
  const { bufferBits, ...common } = settings();
  chains = { sr: new Chain({ ...common, bufferBits, seed: 1 }), bc: new Chain({ ...common, bufferBits: null, seed: 2 }) };
  const shown = { bits: bufferBits, batch: common.batch, rate: `α = ${common.rate}`, noise: `σ = ${common.noise}` };
  for (const [name, value] of Object.entries(shown)) {
    $(`dial-${name}-out`).value = value;
    $(`dial-${name}`).setAttribute("aria-valuetext", value); // the slider's own value is a place on a scale of powers
  }
  $("dial-sr-name").textContent = bufferBits ? `SR with ${bufferBits} buffer bit${bufferBits > 1 ? "s" : ""}` : "SR";
  $("dial-note").textContent = "";
  draw();
  if (!running && visible) frame();
}

function frame() {
  running = visible && chains.sr.steps < STEPS;
  if (!running) {
    if (visible) summarize();
    return;
  }
  chains.sr.run(PER_FRAME);
  chains.bc.run(PER_FRAME);
  draw();
  requestAnimationFrame(frame);
}

function summarize() {
  const { bufferBits } = settings();
  $("dial-note").textContent = `After ${count(chains.sr.steps)} steps: SR, ${1 + bufferBits} bit${bufferBits ? "s" : ""} per weight, spent `
    + `${percent(chains.sr.best)} of them on 4.5 and 5.0; BC, 33 bits per weight, ${percent(chains.bc.best)}.`;
}

function draw() {
  for (const [name, chain] of Object.entries(chains)) {
    drawChain($(`dial-${name}`), chain);
    $(`dial-${name}-share`).textContent = `${percent(chain.best)} on the best points`;
  }
}

function drawChain(canvas, chain) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const floor = height - 34;
  const x = (w) => ((w - LOW) / (HIGH - LOW)) * width;
  const y = (value) => floor - (value / 6.5) * (floor - 14);
  context.fillStyle = colour("--card");
  context.fillRect(0, 0, width, height);
  const bar = (DELTA / (HIGH - LOW)) * width * 0.8;
  for (let w = LOW; w <= HIGH; w += DELTA) {
    const tall = chain.share(w) * (floor - 20);
    context.fillStyle = BEST.includes(w) ? colour("--accent") : colour("--quiet");
    context.globalAlpha = 0.85;
    context.fillRect(x(w) - bar / 2, floor - tall, bar, tall);
  }
  context.globalAlpha = 1;
  context.strokeStyle = colour("--ink");
  context.lineWidth = 2.5;
  context.beginPath();
  for (let w = LOW; w <= HIGH; w += 0.02) context.lineTo(x(w), y(loss(w)));
  context.stroke();
  context.fillStyle = colour("--quiet");
  context.font = "20px system-ui, sans-serif";
  context.textAlign = "center";
  for (let w = -2; w <= 7; w++) context.fillText(String(w).replace("-", "−"), x(w), height - 10);
  const now = chain.point * DELTA;
  context.fillStyle = colour("--warm");
  context.beginPath();
  context.arc(x(Math.max(LOW, Math.min(HIGH, now))), y(Math.min(6.4, loss(now))), 10, 0, 2 * Math.PI);
  context.fill();
}

export function startDial() {
  for (const id of ["dial-bits", "dial-batch", "dial-rate", "dial-noise"]) $(id).addEventListener("input", restart);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chains && draw());
  document.addEventListener("tab", ({ detail }) => {
    visible = detail === "dial";
    if (!visible) return;
    if (!chains) restart();
    else if (!running) frame();
  });
}
