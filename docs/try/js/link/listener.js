// A board that listens: samples go to it, detections come back. runtime/link/listen_device.py is the same in Python.
import { RefusedError, RestartedError, SLOW } from "./connection.js";
import { COMMANDS, PIECE_MAX, pack, words } from "./frames.js";

const VALUES_MOST = PIECE_MAX / 2;
const RESTARTS = 5; // in one recording, before a board is given up
const MARGIN = 2.5; // nats: 12 times as likely as the second best class
const IGNORABLE = 32; // classes that can be ignored: the first ones
const BACKGROUND = ["silence", "unknown", "noise", "background", "nothing", "other"];
const [UNKNOWN_COMMAND, NOT_NOW, MODEL, NOBODY_LISTENS, NO_FRONT_END, NO_ROOM] = [1, 5, 6, 12, 25, 21];

/** Nearest, ties to even, as Python rounds. */
function rounded(value) {
  const nearest = Math.round(value);
  return nearest - value === 0.5 && nearest % 2 ? nearest - 1 : nearest;
}

/** fb_listen_config as `flipbit device listen` makes it. `margin`: in nats, by how much the best class must lead. */
export function listenConfig({ labels, output, input }, frontEnd, margin = MARGIN) {
  const rows = input.height; // of a net of sound: the rows of a window
  const windows = rows / frontEnd.hop; // that overlap with one
  const ignored = labels.map((name, i) => [name, i]).filter(([name]) => BACKGROUND.includes(name.replace(/^_+|_+$/g, "").toLowerCase()));
  return {
    stride: 0,
    threshold: Math.min(255, rounded(margin / output.scale)),
    average: Math.max(1, Math.min(16, rounded(windows / 3))),
    refractory: Math.min(0xffff, rounded(windows)),
    ignored: ignored.filter(([, i]) => i < IGNORABLE).reduce((sum, [, i]) => sum + 2 ** i, 0),
  };
}

/** A stream of int16 values to a board. After a restart of the board a new stream begins where it stopped. */
export class DeviceListener {
  constructor(device, frontEnd, rows, config, onRestart = () => {}) {
    Object.assign(this, { device, frontEnd, rows, config, onRestart });
    this.sent = this.begun = this.restarts = 0;
    this.windows = this.crc = 0;
  }

  async open() {
    const { stride, threshold, average, refractory, ignored } = this.config;
    const payload = pack("H", stride, "H", threshold, "H", average, "H", refractory, "I", ignored);
    try {
      [this.ram, this.arena] = words(await this.device.request(COMMANDS.LISTEN_OPEN, payload, { restarts: true }), 2);
    } catch (error) {
      throw inWords(error);
    }
    this.windows = this.crc = 0;
    return this;
  }

  /** What a piece of the samples brings: [{ window, label, margin, samples }]. `going` says whether to go on. */
  async push(values, going = () => true) {
    const found = [];
    for (let at = 0; at < values.length && going(); ) {
      let taken;
      try {
        taken = await this._piece(values.subarray(at, at + VALUES_MOST), found);
      } catch (error) {
        await this._again(error);
        continue;
      }
      at += taken;
    }
    return found;
  }

  async _piece(values, found) {
    const index = (this.sent - this.begun) % 2 ** 32;
    const bytes = new Uint8Array(2 * values.length);
    const view = new DataView(bytes.buffer);
    values.forEach((value, i) => view.setInt16(2 * i, value, true));
    const reply = await this.device.request(COMMANDS.LISTEN_PUSH, pack("I", index, bytes), { timeout: SLOW });
    const [following, windows, crc] = words(reply, 4);
    const taken = (following - index + 2 ** 32) % 2 ** 32;
    if (!taken || taken > values.length) throw new Error(`the board took ${taken} of ${values.length} samples: is it another firmware?`);
    Object.assign(this, { windows, crc });
    this.sent += taken;
    if (reply.length >= 24) {
      const [window] = words(reply, 1, 16);
      const rest = new DataView(reply.buffer, reply.byteOffset + 20);
      found.push({ window, label: rest.getUint16(0, true), margin: rest.getInt16(2, true), samples: this._end(window) });
    }
    return taken;
  }

  /** Samples of the whole recording up to the end of a window. */
  _end(window) {
    const { frame, step, hop, channels } = this.frontEnd;
    return this.begun / channels + frame + (this.rows - 1) * step + window * step * (this.config.stride || hop);
  }

  async _again(error) {
    const silent = error instanceof RefusedError && error.status === NOT_NOW && error.detail === NOBODY_LISTENS;
    if (!silent && !(error instanceof RestartedError)) throw error;
    this.restarts += 1;
    if (this.restarts > RESTARTS) throw new Error(`the board restarted ${this.restarts} times: is its supply too weak?`);
    await this.device.hello();
    this.begun = this.sent;
    await this.open();
    this.onRestart(this.begun);
  }
}

function inWords(error) {
  if (!(error instanceof RefusedError)) return error;
  if (error.status === UNKNOWN_COMMAND) return new Error("the board's firmware does not know how to listen: flash a newer one");
  if (error.status === MODEL && error.detail === NO_FRONT_END) return new Error("the board's net does not say how sound becomes its input");
  if (error.status === MODEL && error.detail === NO_ROOM) {
    return new Error("the board has too little RAM to listen with this net: use a smaller net, or a board with more RAM");
  }
  return error;
}
