// A layer's output, as much of it as the page paints: a stranger's net may have gigabytes of it.

const CHANNELS = 32; // of pictures and signals
const UNITS = 256; // of vectors
const FINEST = 96; // pixels of a channel, either way

/** `{ values, height, width, channels, low, high }` of an output as the core has it (int8, or packed bits). */
export function thinned(stored, { rank, height, width, channels, bits }) {
  const [rows, columns] = rank === 3 ? [height, width] : [1, 1];
  const kept = Math.min(channels, rank === 3 ? CHANNELS : UNITS);
  const skip = Math.ceil(Math.max(rows, columns) / FINEST); // of large ones every skip-th pixel
  const [h, w] = [Math.ceil(rows / skip), Math.ceil(columns / skip)];
  const values = new Int8Array(kept * h * w);
  const plane = rows * columns;
  let low = 127, high = -128, to = 0;
  for (let c = 0; c < kept; c++) {
    for (let y = 0; y < rows; y += skip) {
      for (let x = 0; x < columns; x += skip) {
        const at = y * columns + x;
        const value = bits ? bitOf(stored, plane, c, at) : stored[c * plane + at];
        if (value < low) low = value;
        if (value > high) high = value;
        values[to++] = value;
      }
    }
  }
  return { values, height: h, width: w, channels: kept, low, high };
}

/** ±1 of packed bits: words of 16 channels, each with as many pixels as the image. */
function bitOf(stored, plane, channel, at) {
  const byte = 2 * ((channel >> 4) * plane + at) + ((channel >> 3) & 1);
  return (stored[byte] >> (channel & 7)) & 1 ? 1 : -1;
}
