// The board at the other end, and the rule of the bench: one thing at a time, as the board does.
import { $, make, on, tell } from "./elements.js";

const LOG = 200; // lines

/** `device`: a Device, null while no board is connected. `crc`: of the net it runs. */
export const connected = { device: null, crc: 0 };

export function say(text) {
  $("board-result").textContent = text;
}

export function log(text) {
  const list = $("board-log");
  list.append(make("li", { textContent: text }));
  while (list.children.length > LOG) list.firstChild.remove();
  list.scrollTop = list.scrollHeight;
}

export function showShare(share) {
  $("board-progress").hidden = share === null;
  $("board-progress").value = share ?? 0;
}

let busy = false;

/** Run `work` alone: everything else on the bench waits, but for the buttons that end it. */
export async function alone(work, ...stays) {
  const board = connected.device;
  if (busy || !board) return;
  busy = true;
  tell(""); // what went wrong before
  const others = [...$("board-bench").querySelectorAll("button, input[type=file]")]
    .filter((one) => !stays.includes(one.id) && !one.disabled);
  const focused = document.activeElement;
  for (const one of others) one.disabled = true;
  try {
    await work(board);
  } catch (error) {
    log(`error: ${error.message}`);
    throw error;
  } finally {
    busy = false;
    showShare(null);
    for (const one of others) one.disabled = false;
    if (document.activeElement === document.body && focused?.isConnected) focused.focus({ preventScroll: true });
  }
}

/** A button that does one thing. */
export const action = (id, work) => on(id, "click", () => alone(work));

/** A button that begins something, and ends it when pressed again: work(board, going). Returns what ends it. */
export function toggle(id, work, ...stays) {
  const button = $(id);
  let running = false;
  on(id, "click", async () => {
    if (running || button.getAttribute("aria-pressed") === "true") {
      running = false;
      return;
    }
    running = true;
    button.setAttribute("aria-pressed", "true");
    try {
      await alone((board) => work(board, () => running && connected.device === board), id, ...stays);
    } finally {
      running = false;
      button.setAttribute("aria-pressed", "false");
    }
  });
  return () => { running = false; };
}
