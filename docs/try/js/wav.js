// A .wav file as int16 samples at 16 kHz, one channel: runtime/audio/wav.py in JavaScript, with its rules and limits.
import { resample } from "./resample.js";

export const RATE = 16_000;
const PCM = 1, FLOAT = 3, EXTENSIBLE = 0xfffe;
const SECONDS_MOST = 600; // here, where all of it is kept in memory and sent over a line

const refused = (name, why) => new Error(`${name}: ${why}`);

/** Nearest, ties to even, within int16. */
export function toInt16(value) {
  let rounded = Math.floor(value + 0.5);
  if (rounded - value === 0.5 && rounded % 2) rounded -= 1;
  return Math.max(-32768, Math.min(32767, rounded));
}

function parts(view, name) {
  const text = (at) => String.fromCharCode(...Array.from({ length: 4 }, (_, i) => view.getUint8(at + i)));
  if (view.byteLength < 12 || text(0) !== "RIFF" || text(8) !== "WAVE") {
    throw refused(name, "not a WAV file; convert it with: ffmpeg -i FILE -ar 16000 -ac 1 out.wav");
  }
  let format = null;
  for (let at = 12; at + 8 <= view.byteLength; ) {
    const size = view.getUint32(at + 4, true);
    const there = Math.min(size, view.byteLength - at - 8);
    if (text(at) === "fmt ") format = formatOf(view, at + 8, there, name);
    else if (text(at) === "data") {
      if (!format) throw refused(name, "has samples before their format (no fmt chunk)");
      const cut = there < size && size !== 0xffffffff;
      return { format, at: at + 8, size: there, note: cut ? "it is cut short" : "" };
    }
    at += 8 + size + (size % 2);
  }
  throw refused(name, format ? "has no samples (no data chunk)" : "has no format (no fmt chunk)");
}

function formatOf(view, at, size, name) {
  if (size < 16) throw refused(name, `has a format of ${size} bytes, expected 16 or more`);
  let code = view.getUint16(at, true);
  const [channels, rate] = [view.getUint16(at + 2, true), view.getUint32(at + 4, true)];
  const [align, bits] = [view.getUint16(at + 12, true), view.getUint16(at + 14, true)];
  if (code === EXTENSIBLE) {
    if (size < 26) throw refused(name, `has an extensible format of ${size} bytes, expected 40`);
    code = view.getUint16(at + 24, true);
  }
  const widths = { [PCM]: [8, 16, 24, 32], [FLOAT]: [32, 64] }[code];
  if (!widths) throw refused(name, "is compressed; convert it with: ffmpeg -i FILE -ar 16000 -ac 1 out.wav");
  if (!widths.includes(bits)) throw refused(name, `has ${bits} bits per sample; expected ${widths.join(", ")}`);
  if (channels < 1 || channels > 64) throw refused(name, `has ${channels} channels; expected 1 … 64`);
  if (rate < 1_000 || rate > 384_000) throw refused(name, `has ${rate} samples per second; expected 1,000 … 384,000`);
  if (align !== (bits / 8) * channels) throw refused(name, `has ${align} bytes per sample in all channels; expected ${(bits / 8) * channels}`);
  return { code, channels, rate, bits };
}

/** Reads a sample at an offset, on the scale of int16. */
function readerOf(view, { code, bits }) {
  if (code === FLOAT) return bits === 32 ? (at) => view.getFloat32(at, true) * 32768 : (at) => view.getFloat64(at, true) * 32768;
  return {
    8: (at) => (view.getUint8(at) - 128) * 256,
    16: (at) => view.getInt16(at, true),
    24: (at) => (view.getUint16(at, true) + view.getInt8(at + 2) * 65536) / 256,
    32: (at) => view.getInt32(at, true) / 65536,
  }[bits];
}

/** { samples, note }: what a net of sound hears, and what is odd about the file. Throws what is wrong with it. */
export function readWav(bytes, name) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const { format, at, size, note } = parts(view, name);
  const { channels, rate, bits } = format;
  const width = bits / 8;
  const count = Math.floor(size / (width * channels));
  if (!count) throw refused(name, "holds no sample");
  if (count > SECONDS_MOST * rate) throw refused(name, `lasts ${Math.round(count / rate)} s; expected at most ${SECONDS_MOST}: cut it into pieces`);
  const read = readerOf(view, format);
  const mono = new Float64Array(count);
  let loudest = 0;
  for (let i = 0; i < count; i++) {
    let sum = 0;
    for (let c = 0; c < channels; c++) sum += read(at + (i * channels + c) * width);
    mono[i] = sum / channels;
    if (!Number.isFinite(mono[i])) throw refused(name, "holds samples that are no numbers (NaN or infinite)");
    loudest = Math.max(loudest, Math.abs(mono[i]));
  }
  return { samples: Int16Array.from(resample(mono, rate, RATE), toInt16), note: note || (loudest < 1 ? "it is silent" : "") };
}
