// Starts the page: tabs, the choice of the net, files that are dropped anywhere.
import { call, readFile } from "./engine.js";
import { $, guarded, on, tell } from "./elements.js";
import { startBench } from "./bench.js";
import { startDial } from "./dial.js";
import { startInside } from "./inside.js";
import { canHear, hearFile } from "./listening.js";
import { nets } from "./nets.js";
import { startTeach } from "./teach.js";
import { startTry, stopCamera, usePicture } from "./try.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
const WITHOUT_NET = ["dial"];

/** `remember`: the tab before is where the browser's Back leads to. */
function select(tab, { focus = false, remember = false } = {}) {
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", String(chosen));
    one.tabIndex = chosen ? 0 : -1;
    $(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  const name = tab.getAttribute("aria-controls");
  $("picker").hidden = WITHOUT_NET.includes(name);
  if (name !== "try" && name !== "board") stopCamera();
  if (focus) tab.focus();
  if (location.hash !== `#${name}`) history[remember ? "pushState" : "replaceState"](null, "", `#${name}`);
  document.dispatchEvent(new CustomEvent("tab", { detail: name }));
}

function startTabs() {
  const byHash = () => tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
  for (const tab of tabs) {
    tab.addEventListener("click", () => select(tab, { remember: true }));
    tab.addEventListener("keydown", (event) => {
      const at = tabs.indexOf(tab);
      const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      select(tabs[(next + tabs.length) % tabs.length], { focus: true });
    });
  }
  addEventListener("hashchange", () => {
    const tab = byHash(); // none: the link that skips the header
    if (tab) select(tab);
  });
  select(byHash() ?? tabs[0]);
}

async function openFile(file) {
  const bytes = await readFile(file);
  try {
    await nets.open(file.name, bytes);
  } catch (error) {
    throw new Error(`${file.name}: ${error.message}. The net that was here stays.`);
  }
  tell("");
}

const isSound = ({ type, name }) => type.startsWith("audio/") || name.toLowerCase().endsWith(".wav");

async function takeFile(file) {
  if (file.type.startsWith("image/")) {
    select(tabs[0]);
    await usePicture(file);
  } else if (isSound(file)) {
    if (!canHear()) throw new Error(`${file.name}: sound is for a board with a net that hears: connect one under Board`);
    select($("tab-board"));
    await hearFile(file);
  } else await openFile(file);
}

function showChosen() {
  for (const radio of document.querySelectorAll("input[name=net]")) radio.checked = radio.value === nets.key;
}

function startPicker() {
  for (const radio of document.querySelectorAll("input[name=net]")) {
    radio.addEventListener("change", guarded(async () => {
      try {
        if (radio.checked) await nets.use(radio.value);
      } finally {
        showChosen(); // if it could not be loaded, the net that was here stays
      }
    }));
  }
  on("net-file", "change", async ({ target }) => {
    const [file] = target.files;
    target.value = "";
    if (file) await openFile(file);
  });
  nets.addEventListener("change", () => {
    showChosen();
    if (nets.key !== "own") return;
    $("own-net").hidden = false;
    $("own-name").textContent = nets.current.name;
    $("own-size").textContent = `${nets.current.facts.size.toLocaleString("en")} bytes`;
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    $("picture-drop").classList.add("over");
  });
  document.addEventListener("dragleave", () => $("picture-drop").classList.remove("over"));
  document.addEventListener("drop", guarded(async (event) => {
    event.preventDefault();
    $("picture-drop").classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (!file) return;
    tell("");
    await takeFile(file);
  }));
}

/** With a worker between page and network, a page that was visited once works without a network. */
async function startOffline() {
  try {
    await navigator.serviceWorker?.register(new URL("../offline.js", import.meta.url));
  } catch (error) {
    console.info("not kept for offline use:", error.message);
  }
}

async function start() {
  startTry();
  startTeach();
  startInside();
  startDial();
  startBench();
  startPicker();
  $("core-version").textContent = await call("version");
  await nets.use("digits");
  $("starting").hidden = true;
  startTabs();
  document.body.dataset.ready = "true";
  startOffline();
  $("reports").hidden = !new URLSearchParams(location.search).has("reports"); // flipbit serve has found some
}

start().catch((error) => {
  $("starting").hidden = true;
  tell(`The page could not start: ${error.message}`);
});
