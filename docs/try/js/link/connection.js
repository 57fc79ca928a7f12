// Requests to a board and their answers, over a line that may lose bytes: each request may be sent again.
import { FrameReader, commandName, encodeRequest } from "./frames.js";
import { refusal } from "./refusals.js";

const QUIET = 50, TIMEOUT = 2_000, RETRIES = 4; // milliseconds; times
export const SLOW = 120_000; // the net runs, or flash is erased

const gone = (error) => `the line is gone: was the board unplugged? (${error.message})`;

export class RefusedError extends Error {
  constructor(command, status, detail) {
    super(refusal(commandName(command), status, detail));
    Object.assign(this, { status, detail });
  }
}

/** What was loaded or under way on the board is gone. */
export class RestartedError extends Error {}

export class Connection {
  /** `port`: an open Web Serial port. `onText`: what the board says unasked, and noise. */
  constructor(port, crc32, onText) {
    Object.assign(this, { port, onText });
    this._crc32 = crc32;
    this._frames = new FrameReader(crc32);
    this._reader = port.readable.getReader();
    this._writer = port.writable.getWriter();
    this._id = 0;
    this._waiting = null; // of the one request: { take, fail, hurry }
    this._queue = Promise.resolve();
    this.closed = false;
    this._listen();
  }

  async _listen() {
    let why = "the line was closed";
    try {
      for (;;) {
        const { value, done } = await this._reader.read();
        if (done) break;
        const noise = (line) => {
          this.onText(`? ${new TextDecoder().decode(line.slice(0, 80))}`);
          this._waiting?.hurry(TIMEOUT); // perhaps the answer, damaged: no use in waiting much longer
        };
        for (const frame of this._frames.feed(value, noise)) this._receive(frame);
      }
    } catch (error) {
      why = gone(error);
    }
    const lost = !this.closed;
    this.closed = true;
    this._waiting?.fail(new Error(why));
    if (lost) this.onLost?.(why);
  }

  _receive(frame) {
    if (frame.isEvent) this.onText(new TextDecoder().decode(frame.payload));
    this._waiting?.take(frame);
  }

  /** The payload of the answer; RefusedError if that is an error. Requests wait for each other. */
  request(command, payload = new Uint8Array(0), { timeout = TIMEOUT, retries = RETRIES, restarts = false } = {}) {
    const asked = this._queue.then(() => this._ask(command, payload, timeout, retries, restarts));
    this._queue = asked.catch(() => {});
    return asked;
  }

  async _ask(command, payload, timeout, retries, restarts) {
    this._id = (this._id % 0xffff) + 1;
    const line = encodeRequest(this._id, command, payload, this._crc32);
    for (let attempt = 0; attempt <= retries; attempt++) {
      if (this.closed) throw new Error("the board is not connected any more");
      const answer = this._await(this._id, command, timeout, restarts);
      this._writer.write(line).catch((error) => this._waiting?.fail(new Error(gone(error))));
      const frame = await answer;
      if (!frame) continue;
      if (frame.status) throw new RefusedError(command, frame.status, new DataView(frame.payload.buffer).getUint32(0, true));
      return frame.payload;
    }
    throw new Error(`no answer to ${commandName(command)}: does the board run the flipbit firmware, and is the baud rate right?`);
  }

  /** The reply to a request; null when it has to be sent again. */
  _await(id, command, timeout, restarts) {
    return new Promise((resolve, reject) => {
      let deadline = Infinity, timer = 0;
      const hurry = (wait) => {
        if (performance.now() + wait >= deadline) return;
        deadline = performance.now() + wait;
        clearTimeout(timer);
        timer = setTimeout(() => end(resolve, null), wait);
      };
      const end = (settle, value) => {
        clearTimeout(timer);
        this._waiting = null;
        settle(value);
      };
      this._waiting = {
        fail: (error) => end(reject, error),
        take: (frame) => {
          if (frame.isReplyTo(id, command)) end(resolve, frame);
          else if (frame.isEvent && !restarts && new TextDecoder().decode(frame.payload).startsWith("ready")) {
            end(reject, new RestartedError("the board started anew meanwhile; what was loaded is gone"));
          } else if (frame.isComplaint) {
            hurry(QUIET); // about noise before the request, perhaps: its answer may still come
          }
        },
        hurry,
      };
      hurry(timeout);
    });
  }

  /** Give the port back, also after the line is gone: only then it can be opened again. */
  async close() {
    this.closed = true;
    this._waiting?.fail(new Error("disconnected"));
    await this._reader.cancel().catch(() => {});
    this._reader.releaseLock();
    await this._writer.abort().catch(() => {}); // what is not sent yet would wait for a board that may be gone
    this._writer.releaseLock();
    await this.port.close().catch(() => {});
  }
}
