// Frames between page and board: docs/protocol.md as functions. runtime/link/protocol.py is the same in Python.

export const PROTOCOL_VERSION = 2;
export const PAYLOAD_MAX = 244, PIECE_MAX = 240, LINE_MAX = 253;
export const BUILT_IN = 0xff, NO_SLOT = 0xfe;
const REPLY = 0x80, EVENT = 0xff;

export const COMMANDS = {
  IDENTIFY: 0x01, COUNTERS: 0x02, ECHO: 0x03, RESET: 0x04, LOAD: 0x10, INFER: 0x11, READ_OUTPUT: 0x12, LAYERS: 0x14,
  LOOK: 0x20, BEGIN: 0x21, PIECE: 0x22, FINISH: 0x23, SELECT: 0x24, READ_IMAGE: 0x25,
  LISTEN_OPEN: 0x30, LISTEN_PUSH: 0x31,
  LEARN_OPEN: 0x40, LEARN_BEGIN: 0x41, LEARN_SAMPLE: 0x42, LEARN_END: 0x43, LEARN_READ: 0x44, LEARN_SAVE: 0x45, LEARN_FORGET: 0x46,
  LEARN_GUARD: 0x47, LEARN_DRIFT: 0x48,
};

export const commandName = (number) => Object.keys(COMMANDS).find((name) => COMMANDS[name] === number) ?? `command ${number}`;

/** Bytes without zeros. A frame is shorter than 254 bytes, so no group has to be split. */
export function cobsEncode(data) {
  const out = [0];
  let head = 0;
  for (const byte of data) {
    if (byte === 0) {
      out[head] = out.length - head;
      head = out.length;
      out.push(0);
    } else out.push(byte);
  }
  out[head] = out.length - head;
  return Uint8Array.from(out);
}

/** The inverse; null if the bytes are not what cobsEncode gives. */
export function cobsDecode(line) {
  const out = [];
  for (let at = 0; at < line.length; ) {
    const end = at + line[at];
    if (line[at] === 0 || end > line.length) return null;
    for (let i = at + 1; i < end; i++) out.push(line[i]);
    at = end;
    if (at < line.length) out.push(0);
  }
  return Uint8Array.from(out);
}

/** A request as it goes over the line; the zero before it ends any noise. `crc32` is the core's. */
export function encodeRequest(id, command, payload, crc32) {
  if (payload.length > PAYLOAD_MAX) throw new Error(`a payload of ${payload.length} bytes; a frame takes ${PAYLOAD_MAX}`);
  const frame = new Uint8Array(4 + payload.length + 4);
  const view = new DataView(frame.buffer);
  view.setUint16(0, id, true);
  view.setUint8(2, command);
  frame.set(payload, 4);
  view.setUint32(4 + payload.length, crc32(frame.subarray(0, -4)), true);
  return Uint8Array.from([0, ...cobsEncode(frame), 0]);
}

/** A frame from the bytes before its zero; null if they are none. */
export function decodeFrame(line, crc32) {
  const frame = line.length > LINE_MAX ? null : cobsDecode(line);
  if (!frame || frame.length < 8) return null;
  const view = new DataView(frame.buffer);
  if (view.getUint32(frame.length - 4, true) !== crc32(frame.subarray(0, -4))) return null;
  const [id, command, status] = [view.getUint16(0, true), frame[2], frame[3]];
  return {
    id, command, status,
    payload: frame.slice(4, -4),
    isEvent: command === EVENT && id === 0,
    isComplaint: command === REPLY && id === 0 && status >= 0x10,
    isReplyTo: (number, asked) => id === number && command === (asked | REPLY),
  };
}

/** Frames out of bytes that come in pieces. */
export class FrameReader {
  constructor(crc32) {
    this._crc32 = crc32;
    this._line = [];
    this.bad = 0;
  }

  feed(bytes, onNoise = () => {}) {
    const frames = [];
    for (const byte of bytes) {
      if (byte !== 0) {
        this._line.push(byte);
        if (this._line.length > 4096) this._line.shift();
        continue;
      }
      const line = Uint8Array.from(this._line);
      this._line = [];
      if (!line.length) continue;
      const frame = decodeFrame(line, this._crc32);
      if (frame) frames.push(frame);
      else {
        this.bad += 1;
        onNoise(line);
      }
    }
    return frames;
  }
}

/** Bytes of little-endian numbers: pack("B", 1, "I", 2, bytes). */
export function pack(...parts) {
  const bytes = [];
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i];
    if (part instanceof Uint8Array) bytes.push(...part);
    else {
      const size = { B: 1, H: 2, I: 4 }[part];
      const value = parts[++i] >>> 0;
      for (let b = 0; b < size; b++) bytes.push((value >>> (8 * b)) & 0xff);
    }
  }
  return Uint8Array.from(bytes);
}

/** Numbers u32 of a reply. */
export function words(payload, countOf, at = 0) {
  const view = new DataView(payload.buffer, payload.byteOffset);
  if (payload.length < at + 4 * countOf) throw new Error(`a reply of ${payload.length} bytes; expected ${at + 4 * countOf}`);
  return Array.from({ length: countOf }, (_, i) => view.getUint32(at + 4 * i, true));
}
