// What the page reads of an image itself, after the core has checked it: docs/fbit-format.md.

const HEADER = 32, TENSOR = 12, OPERATION = 28;
const HAS_FRONT_END = 1; // flag of the header
const HAS_REFERENCES = 16; // flag of an operation
const SOUND = 1;

function opened(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [tensors, operations] = [view.getUint16(16, true), view.getUint16(18, true)];
  return { view, operations, at: HEADER + TENSOR * tensors };
}

/** How recordings become the net's input; null for a net of pictures or numbers. Times are in samples. */
export function frontEndOf(bytes) {
  const { view, operations, at } = opened(bytes);
  if (!(view.getUint16(6, true) & HAS_FRONT_END)) return null;
  const found = at + OPERATION * operations;
  const number = (offset) => view.getUint16(found + offset, true);
  const sound = view.getUint8(found) === SOUND;
  return {
    sound, channels: view.getUint8(found + 1), hop: number(2), rate: view.getUint32(found + 4, true) / 1000,
    frame: sound ? number(8) : 1, // samples that make a row
    step: sound ? number(10) : 1, // samples from one row to the next
  };
}

/** Whether a layer knows the mean and deviation it had in training: such a net can be recalibrated. */
export function hasReferences(bytes) {
  const { view, operations, at } = opened(bytes);
  return Array.from({ length: operations }, (_, i) => view.getUint8(at + OPERATION * i + 1)).some((flags) => flags & HAS_REFERENCES);
}
