// Draw, drop a picture or hold something before the camera: class, scores, what each layer sees.
import { showAnswer } from "./answer.js";
import { $, guarded, make, on, shape, tell } from "./elements.js";
import { examplePicture, exampleStrokes, exampleValues } from "./examples.js";
import { lessons } from "./lessons.js";
import { showMaps } from "./maps.js";
import { nets } from "./nets.js";
import { paintNumbers } from "./numbers.js";
import { Pad } from "./pad.js";
import { inverted, isDarkOnLight, onWhite, paintPixels, picturePixels, readPicture } from "./pictures.js";
import { drawnPixels } from "./strokes.js";

const pad = new Pad($("pad"));
let source = "draw";
let picture = null;
let pictureIsGiven = false; // by the user, not made up
let stream = null;
let digits = null; // that are shown as examples, when they are first asked for
let shown = null; // pixels of one of them, while it is on the pad
let numbers = null; // { what, values }: the made-up input of a net that takes no pictures
let turn = 0; // of the examples of a net
let drawn = null; // strokes of an example, while they may be on the pad
let identity = ""; // of the net that they are for
const LONG = 3; // seconds of a run that the page does not begin unasked
let current = null; // { values, pixels } of the input; no pixels where the net takes none
let running = null, again = false;

/** The input that is shown, as the net takes it; null if there is none. */
export const currentInput = () => current;

async function pixelsNow() {
  const { input } = nets.current.facts;
  if (source === "draw") {
    if (shown) return shown;
    return pad.empty ? null : drawnPixels(pad.strokes, input.width);
  }
  const from = source === "file" ? picture : stream && $("camera").readyState >= 2 ? $("camera") : null;
  if (!from) return null;
  const pixels = picturePixels(from, input);
  return input.channels === 1 && $("invert").checked ? inverted(pixels) : pixels;
}

/** Run the net on what is shown now, and wait for it. One run at a time; the last change wins. */
export function refresh() {
  again = true;
  running ??= catchUp().finally(() => { running = null; });
  return running;
}

async function catchUp() {
  while (again) {
    again = false;
    await classify();
  }
}

async function classify() {
  const net = nets.current;
  const pixels = net.takesPictures ? await pixelsNow() : null;
  const made = net.takesPictures ? null : numbers?.values;
  const values = pixels ? await net.call("quantize", pixels) : made ?? new Int8Array(net.facts.input.size).fill(net.facts.input.zeroPoint);
  const { seconds } = net;
  $("long").hidden = seconds < LONG || net.mayTakeLong;
  if (!$("long").hidden) {
    $("long-text").textContent = `This net needs roughly ${Math.ceil(seconds).toLocaleString("en")} s for one answer here. Runs of more than 20 s are stopped.`;
    showNothing();
    return;
  }
  let result;
  try {
    result = await net.call("run", values, true);
  } catch (error) {
    if (net === nets.current) showNothing();
    net.mayTakeLong = false; // ask before it is tried once more
    throw error;
  }
  if (net !== nets.current) return; // another one has been chosen: its turn comes
  current = pixels || made ? { values, pixels } : null;
  showAnswer(net, result, Boolean(current));
  $("lesson-add").disabled = !pixels;
  const seen = $("seen");
  seen.hidden = !net.takesPictures; // others are drawn large beside it
  if (pixels) paintPixels(seen, pixels, net.facts.input);
  else seen.getContext("2d").clearRect(0, 0, seen.width, seen.height);
  showMaps($("maps"), net, result.layers);
}

/** There is no answer: of the net before, none must stay. */
function showNothing() {
  current = null;
  $("answer-class").textContent = "–";
  for (const id of ["answer-score", "answer-facts", "values-note"]) $(id).textContent = "";
  $("lesson-add").disabled = true;
  for (const id of ["scores", "maps"]) $(id).replaceChildren();
}

function choose(next) {
  source = next;
  for (const name of ["draw", "file", "camera"]) $(`from-${name}`).setAttribute("aria-pressed", String(name === source));
  $("pad-box").hidden = source !== "draw";
  $("picture-box").hidden = source !== "file";
  $("camera-box").hidden = source !== "camera";
  if (source !== "camera") stopCamera();
  $("answer").setAttribute("aria-live", source === "camera" ? "off" : "polite"); // not sixteen times a second
  $("numbers-box").hidden = source !== "numbers";
  const figure = nets.current?.facts.labels.slice(0, 10).join() === "0,1,2,3,4,5,6,7,8,9" ? "Draw a digit" : "Draw something";
  const titles = { draw: figure, file: "Drop a picture", camera: "Show it something", numbers: "What it is given" };
  $("input-title").textContent = titles[source];
}

/** Whether the camera is on. */
export const cameraRuns = () => Boolean(stream);

let asked = 0; // for the camera: who leaves before it comes does not get it

export async function startCamera() {
  choose("camera");
  if (stream) return;
  const mine = (asked += 1);
  if (!navigator.mediaDevices?.getUserMedia) {
    $("camera-note").textContent = "This browser gives pages no camera here: it needs localhost or https.";
    return;
  }
  let found;
  try {
    found = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    if (mine === asked) $("camera-note").textContent = `No camera: ${error.message}. A picture works without.`;
    return;
  }
  if (mine !== asked) {
    for (const track of found.getTracks()) track.stop();
    return;
  }
  stream = found;
  $("camera-note").textContent = "";
  for (const track of stream.getTracks()) {
    track.addEventListener("ended", () => { // unplugged, or taken back by the user
      if (stream !== found) return;
      stopCamera();
      $("camera-note").textContent = "The camera is gone. Press Camera to try again.";
    });
  }
  $("camera").srcObject = stream;
  await $("camera").play().catch(() => {}); // it was left meanwhile
  const watch = guarded(async () => {
    if (stream !== found) return;
    await refresh();
    if (stream === found) setTimeout(() => requestAnimationFrame(watch), 60);
  });
  watch();
}

export function stopCamera() {
  asked += 1;
  for (const track of stream?.getTracks() ?? []) track.stop();
  stream = null;
  $("camera").srcObject = null;
}

async function usePicture(file) {
  showPicture(await readPicture(file), true); // until then the one that was here is shown
  await refresh();
}

function showPicture(found, given) {
  picture?.close?.();
  [picture, pictureIsGiven] = [found, given];
  if (given) tell("");
  const canvas = $("picture");
  const scale = Math.min(1, 320 / Math.max(picture.width, picture.height));
  canvas.width = Math.max(1, Math.round(picture.width * scale));
  canvas.height = Math.max(1, Math.round(picture.height * scale));
  onWhite(canvas, picture, 0, 0, canvas.width, canvas.height);
  canvas.hidden = false;
  $("picture-what").textContent = given ? "" : "A made-up picture: it shows what the layers do, not how good the net is.";
  choose("file");
  const { input } = nets.current.facts;
  if (input.channels === 1) $("invert").checked = isDarkOnLight(picturePixels(picture, input), input);
}

async function showDigit() {
  const before = { identity: nets.identity, strokes: pad.strokes };
  digits ??= await nets.digits();
  if (nets.identity !== before.identity || pad.strokes !== before.strokes) return; // meanwhile another net was chosen, or something drawn
  const { pixels } = digits[turn % digits.length];
  pad.clear();
  shown = pixels;
  const context = $("pad").getContext("2d");
  const cell = $("pad").width / 8;
  pixels.forEach((value, i) => {
    context.fillStyle = `rgb(255 255 255 / ${value / 255})`;
    context.fillRect((i % 8) * cell, Math.floor(i / 8) * cell, cell, cell);
  });
}

/** An input that fits the net, another one each time. */
async function showExample() {
  const net = nets.current;
  if (!net.takesPictures) {
    numbers = exampleValues(net, turn);
    paintNumbers($("numbers"), net, numbers.values);
    $("numbers").setAttribute("aria-label", `The input, made up: ${numbers.what}`);
    $("numbers-what").textContent = `Made up: ${numbers.what}.`;
  } else if (source === "file") showPicture(examplePicture(turn), false);
  else if (net.isDigits) await showDigit();
  else pad.show((drawn = exampleStrokes(net, turn)));
  turn += 1;
  await refresh();
}

/** Where the inputs of a net that takes no pictures come from. */
function withoutPictures({ facts, frontEnd }) {
  if (frontEnd?.sound) return "This net hears sound: connect a board that runs it under Board, and let it listen.";
  if (frontEnd) {
    const values = `${frontEnd.channels} value${frontEnd.channels === 1 ? "" : "s"}`;
    return `This net reads sensors, ${values} at ${frontEnd.rate.toLocaleString("en")} Hz: flipbit run takes recordings.`;
  }
  return `This net takes ${shape(facts.input)} numbers and does not say how pixels become them, so there is nothing to draw.`;
}

function followNet() {
  const net = nets.current;
  const { draws, takesPictures } = net;
  if (identity !== nets.identity) { // what was shown to another net may not fit this one
    identity = nets.identity;
    if (shown || (drawn && pad.strokes === drawn)) pad.clear();
    [shown, drawn, numbers, turn] = [null, null, null, 0];
    $("lesson-class").replaceChildren(...net.classes().map((name, value) => make("option", { value, textContent: name })));
  }
  $("input-kind").hidden = !takesPictures;
  $("from-draw").hidden = !draws;
  $("invert-box").hidden = net.facts.input.channels !== 1;
  $("from-file").disabled = $("from-camera").disabled = !takesPictures;
  if (!takesPictures) choose("numbers");
  else if (source === "numbers") choose(draws ? "draw" : "file");
  else if (!draws && source === "draw") choose("file");
  else if (draws && source === "file" && !pictureIsGiven) choose("draw");
  else choose(source);
  $("input-note").textContent = takesPictures ? "" : withoutPictures(net);
  $("lesson-add").disabled = true; // until it has seen something
  $("lesson-row").hidden = !takesPictures || net.givesValues;
  const nothing = source === "numbers" ? !numbers : source === "file" ? !picture : source === "draw" && pad.empty && !shown;
  (nothing ? showExample() : refresh()).catch((error) => tell(error.message));
}

export function startTry() {
  pad.addEventListener("change", guarded(async () => {
    shown = null;
    await refresh();
  }));
  on("pad-clear", "click", () => pad.clear());
  on("pad-undo", "click", () => pad.undo());
  on("long-run", "click", () => {
    nets.current.mayTakeLong = true;
    return refresh();
  });
  for (const id of ["pad-example", "picture-example", "numbers-example"]) on(id, "click", showExample);
  on("from-draw", "click", () => { choose("draw"); return refresh(); });
  on("from-file", "click", () => { choose("file"); return refresh(); });
  on("from-camera", "click", startCamera);
  on("invert", "change", refresh);
  on("picture-file", "change", async ({ target }) => {
    const [file] = target.files;
    target.value = "";
    if (file) await usePicture(file);
  });
  on("lesson-add", "click", () => {
    if (!current) return;
    const label = Number($("lesson-class").value);
    lessons.add({ ...current, label });
    $("lesson-note").textContent = `Added as ${nets.current.label(label)}: see Teach.`;
  });
  nets.addEventListener("change", followNet);
}

export { usePicture };
