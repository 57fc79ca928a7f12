// The bench's ears: a microphone or a recording goes to the board, detections come back with times.
import { alone, connected, say, showShare, toggle } from "./connected.js";
import { $, count, make, on, tell } from "./elements.js";
import { readFile } from "./engine.js";
import { DeviceListener, listenConfig } from "./link/listener.js";
import { Microphone } from "./microphone.js";
import { nets } from "./nets.js";
import { RATE, readWav } from "./wav.js";

const BEHIND_MOST = 60; // seconds that the board may be behind the microphone
const LISTED = 200; // detections
const TOGETHER = 1600; // values between two looks at the time

/** Sound that has been heard and not sent yet. */
class Waiting {
  constructor() {
    this.pieces = [];
    this.heard = 0; // samples so far
    this.ended = false;
    this._news = () => {};
  }

  add(samples) {
    this.pieces.push(samples);
    this.heard += samples.length;
    this._news();
  }

  end() {
    this.ended = true;
    this._news();
  }

  /** The next piece, when there is one; null at the end. */
  async next() {
    while (!this.pieces.length && !this.ended) await new Promise((resolve) => { this._news = resolve; });
    return this.pieces.shift() ?? null;
  }
}

const seconds = (samples) => `${(samples / RATE).toFixed(2)} s`;

function begin() {
  $("detections").replaceChildren();
  $("listen-note").textContent = "";
  $("listen-status").textContent = "";
}

function show({ label, margin, samples }) {
  const list = $("detections");
  const nats = margin * nets.current.facts.output.scale;
  list.append(make("li", {}, make("span", { className: "n", textContent: seconds(samples) }), " ",
    make("b", { textContent: nets.current.label(label) }), " ", make("span", { className: "quiet", textContent: `margin ${nats.toFixed(1)}` })));
  while (list.children.length > LISTED) list.firstChild.remove();
  list.scrollTop = list.scrollHeight;
}

function threshold() {
  const input = $("listen-threshold");
  if (!input.checkValidity() || input.value === "") throw new Error(`Threshold: ${input.min} to ${input.max}`);
  return Number(input.value);
}

/** Send what is waiting, as it comes, until its end or until it is stopped. */
async function send(board, waiting, going, onShare = () => {}) {
  if (nets.current.facts.crc !== connected.crc) throw new Error("The board has another net than this page: upload this page's net first.");
  const { facts, frontEnd } = nets.current;
  const note = (at) => { $("listen-note").textContent = `The board restarted: it listens anew from ${seconds(at)}.`; };
  const listener = await new DeviceListener(board, frontEnd, facts.input.height, listenConfig(facts, frontEnd, threshold()), note).open();
  let found = 0;
  for (let piece; going() && (piece = await waiting.next()); ) {
    for (let at = 0; at < piece.length && going(); at += TOGETHER) {
      for (const one of await listener.push(piece.subarray(at, at + TOGETHER), going)) {
        found += 1;
        show(one);
      }
      onShare(listener.sent / waiting.heard);
      $("listen-status").textContent = `${seconds(listener.sent)} of ${seconds(waiting.heard)} heard by the board, ${count(listener.windows)} windows.`;
    }
  }
  say(`${found} detection${found === 1 ? "" : "s"} in ${seconds(listener.sent)}, ${count(listener.windows)} windows; `
    + `CRC of all outputs ${listener.crc.toString(16).padStart(8, "0")}; ${count(listener.ram)} bytes of RAM for listening.`);
}

let stopSending = () => {};

async function microphone(board, going) {
  begin();
  const waiting = new Waiting();
  let stopped = false;
  const hearing = await Microphone.open((samples) => {
    waiting.add(samples);
    $("listen-level").value = samples.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 32768;
    if (waiting.pieces.length * TOGETHER > BEHIND_MOST * RATE) end(`The board is ${BEHIND_MOST} s behind, so the microphone is off: a higher baud rate keeps up.`);
    else if (!going()) end();
  });
  function end(why = "") {
    hearing.close();
    waiting.end();
    $("listen-level").value = 0;
    if (why) $("listen-note").textContent = why;
  }
  hearing.onEnded = () => end("The microphone is gone.");
  stopSending = () => { stopped = true; end(); };
  $("listen-level").hidden = false;
  $("listen-stop").hidden = false;
  try {
    // Going on after the button was pressed: what was heard until then is still sent.
    await send(board, waiting, () => !stopped && connected.device === board);
  } finally {
    end();
    $("listen-level").hidden = $("listen-stop").hidden = true;
  }
}

/** Let the board hear a .wav file. */
export async function hearFile(file) {
  const { samples, note } = readWav(await readFile(file), file.name);
  begin();
  await alone(async (board) => {
    let stopped = false;
    stopSending = () => { stopped = true; };
    const waiting = new Waiting();
    waiting.add(samples);
    waiting.end();
    $("listen-stop").hidden = false;
    try {
      await send(board, waiting, () => !stopped && connected.device === board, showShare);
    } finally {
      $("listen-stop").hidden = true;
    }
    if (note) $("listen-note").textContent = `${file.name}: ${note}.`;
  }, "listen-stop");
}

/** Whether a board is there that can listen with the page's net. */
export const canHear = () => Boolean(connected.device && nets.current.frontEnd?.sound);

function followNet() {
  $("listening").hidden = !nets.current.frontEnd?.sound;
}

export function startListening() {
  const stopHearing = toggle("listen-microphone", microphone, "listen-stop");
  on("listen-stop", "click", () => stopSending());
  on("listen-file", "change", async ({ target }) => {
    const [file] = target.files;
    target.value = "";
    if (file) {
      tell("");
      await hearFile(file);
    }
  });
  document.addEventListener("tab", ({ detail }) => { if (detail !== "board") stopHearing(); });
  nets.addEventListener("change", followNet);
}
