// A board that runs the flipbit firmware: what it can be asked for. Numbers and orders are those of docs/protocol.md.
import { fixedRate } from "../../core/flipbit.js";
import { Connection, SLOW } from "./connection.js";
import { BUILT_IN, COMMANDS, NO_SLOT, PIECE_MAX, PROTOCOL_VERSION, pack, words } from "./frames.js";

const LEARNING = ["status", "needed", "available", "image", "state", "arenaLeast", "arenaFast", "arena", "steps", "resumed", "recordRoom",
  "record", "owner"];

export class Device extends Connection {
  /** Wait for a board that may still be starting; who it is. */
  async hello(patience = 10_000) {
    const deadline = performance.now() + patience;
    for (;;) {
      try {
        await this.request(COMMANDS.ECHO, Uint8Array.of(104, 105), { timeout: 500, retries: 0, restarts: true });
        return this.info();
      } catch (error) {
        if (this.closed || performance.now() > deadline) throw error;
      }
    }
  }

  async info() {
    const payload = await this.request(COMMANDS.IDENTIFY, undefined, { timeout: 5_000, restarts: true });
    if (payload[0] !== PROTOCOL_VERSION) {
      throw new Error(`the board speaks protocol version ${payload[0]}, this page ${PROTOCOL_VERSION}: flash it anew`);
    }
    const [modelCrc, modelSize, layers, inputSize, outputSize, arenaSize, arenaLeast, ramFree, ram, flash, slotRoom, clockHz, tickHz] = words(
      payload, 13, 8,
    );
    const [version, board, chip, core] = new TextDecoder().decode(payload.slice(60)).split("\0");
    return {
      slots: payload[2], slot: payload[3], storeIsRam: Boolean(payload[5]), learns: Boolean(payload[6]), modelCrc, modelSize, layers,
      inputSize, outputSize, arenaSize, arenaLeast, ramFree, ram, flash, slotRoom, clockHz, tickHz, version, board, chip, core,
      hasModel: payload[3] !== NO_SLOT,
    };
  }

  async _pieces(command, head, size, onShare = () => {}) {
    const data = new Uint8Array(size);
    for (let at = 0; at < size; ) {
      const piece = await this.request(command, pack(head, "I", at, "I", Math.min(PIECE_MAX, size - at)));
      if (!piece.length) throw new Error(`an empty answer at ${at} of ${size} bytes`);
      data.set(piece, at);
      at += piece.length;
      onShare(at / size);
    }
    return data;
  }

  /** The image in use, with what it has learned. */
  async readImage(info, onShare) {
    if (info.learns) return this._pieces(COMMANDS.LEARN_READ, pack("I", 0), info.modelSize, onShare);
    const [, size] = words(await this.request(COMMANDS.LOOK, pack("B", info.slot)), 3);
    return this._pieces(COMMANDS.READ_IMAGE, pack("B", info.slot, "B", 0, "B", 0, "B", 0), size, onShare);
  }

  async load(values) {
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.length);
    for (let at = 0; at < bytes.length; at += PIECE_MAX) {
      await this.request(COMMANDS.LOAD, pack("I", at, bytes.subarray(at, at + PIECE_MAX)));
    }
  }

  async infer(values) {
    await this.load(values);
    const start = performance.now();
    const payload = await this.request(COMMANDS.INFER, undefined, { timeout: SLOW });
    const [best, ticksLow, ticksHigh, size] = words(payload, 4);
    const first = payload.slice(16, 16 + size);
    const output = new Int8Array(size);
    output.set(new Int8Array(first.buffer));
    for (let at = first.length; at < size; ) {
      const piece = await this.request(COMMANDS.READ_OUTPUT, pack("I", at, "I", Math.min(PIECE_MAX, size - at)));
      output.set(new Int8Array(piece.buffer), at);
      at += piece.length;
    }
    return { best, output, ticks: ticksLow + ticksHigh * 2 ** 32, milliseconds: performance.now() - start };
  }

  /** CRC-32 of every layer's output, for an input. */
  async layerSums(values, layers) {
    await this.load(values);
    const sums = [];
    while (sums.length < layers) {
      const payload = await this.request(COMMANDS.LAYERS, pack("I", sums.length), { timeout: SLOW });
      if (payload.length < 12) throw new Error("an empty answer to LAYERS");
      for (let at = 0; at + 12 <= payload.length; at += 12) sums.push(words(payload, 1, at)[0]);
    }
    return sums;
  }

  /** Put an image into a slot that is not in use, select it, and return the slot. */
  async upload(image, crc, onShare) {
    const info = await this.info();
    if (!info.slots) throw new Error(`the ${info.board} has no storage for images; flash the model with the firmware instead`);
    if (image.length > info.slotRoom) throw new Error(`an image of ${image.length} bytes; a slot of the ${info.board} takes ${info.slotRoom}`);
    const slot = Array.from({ length: info.slots }, (_, i) => i).find((i) => i !== info.slot);
    if (slot === undefined) throw new Error("the only slot is in use: select the built-in image first");
    await this.request(COMMANDS.BEGIN, pack("B", slot, "B", 0, "B", 0, "B", 0, "I", image.length, "I", crc), { timeout: SLOW });
    for (let at = 0; at < image.length; at += PIECE_MAX) {
      await this.request(COMMANDS.PIECE, pack("I", at, image.subarray(at, at + PIECE_MAX)));
      onShare(Math.min(1, (at + PIECE_MAX) / image.length));
    }
    await this.request(COMMANDS.FINISH, undefined, { timeout: SLOW });
    await this.request(COMMANDS.SELECT, pack("B", slot), { timeout: SLOW });
    return slot;
  }

  /** Let the net in use learn: from its beginning, or from what it has learned before. `config`: packed. */
  async openLearning(config, { resume = false } = {}) {
    const payload = await this.request(COMMANDS.LEARN_OPEN, pack(config, "B", resume ? 0 : 1, "B", 0, "B", 0, "B", 0), { timeout: SLOW });
    const values = words(payload, LEARNING.length);
    return Object.fromEntries(LEARNING.map((name, i) => [name, values[i]]));
  }

  /** One step: passes over all samples until the board says it is done. */
  async learnStep(step, inputs, labels, rateBits, rateBias, onShare = () => {}) {
    const rates = [fixedRate(rateBits), fixedRate(rateBias)];
    await this.request(COMMANDS.LEARN_BEGIN, pack("I", step, "I", inputs.length, "I", rates[0], "I", rates[1]), { timeout: SLOW });
    for (let pass = 0; ; pass++) {
      let right = 0;
      for (let i = 0; i < inputs.length; i++) {
        await this.load(inputs[i]);
        const [predicted] = words(await this.request(COMMANDS.LEARN_SAMPLE, pack("I", i, "I", labels[i]), { timeout: SLOW }), 3);
        right += predicted === labels[i];
        onShare((i + 1) / inputs.length);
      }
      const [more, , flips] = words(await this.request(COMMANDS.LEARN_END, pack("I", step, "I", pass), { timeout: SLOW }), 4);
      if (!more) return { accuracy: right / inputs.length, flips, passes: pass + 1 };
    }
  }

  async saveLearned() {
    await this.request(COMMANDS.LEARN_SAVE, undefined, { timeout: SLOW });
  }

  async forget() {
    await this.request(COMMANDS.LEARN_FORGET, undefined, { timeout: SLOW });
  }

  async reset() {
    await this.request(COMMANDS.RESET, undefined, { restarts: true });
    return this.hello();
  }
}

export { BUILT_IN };
