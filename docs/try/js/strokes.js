// From strokes to pixels: lines of points in the unit square, drawn as the net's training pictures were.

/** Inked cells (1) of a `side`×`side` bitmap. */
export function inked(strokes, side, pen) {
  const cells = new Uint8Array(side * side);
  const radius = pen / 2;
  for (const stroke of strokes) {
    for (let i = 0; i < stroke.length; i++) {
      const [x0, y0] = stroke[Math.max(0, i - 1)], [x1, y1] = stroke[i];
      const left = Math.max(0, Math.floor(Math.min(x0, x1) - radius)), right = Math.ceil(Math.max(x0, x1) + radius);
      const top = Math.max(0, Math.floor(Math.min(y0, y1) - radius)), bottom = Math.ceil(Math.max(y0, y1) + radius);
      for (let y = top; y < Math.min(side, bottom); y++) {
        for (let x = left; x < Math.min(side, right); x++) {
          if (distance(x + 0.5, y + 0.5, x0, y0, x1, y1) <= radius) cells[y * side + x] = 1;
        }
      }
    }
  }
  return cells;
}

function distance(x, y, x0, y0, x1, y1) {
  const dx = x1 - x0, dy = y1 - y0;
  const length = dx * dx + dy * dy;
  const along = length ? Math.max(0, Math.min(1, ((x - x0) * dx + (y - y0) * dy) / length)) : 0;
  return Math.hypot(x - x0 - along * dx, y - y0 - along * dy);
}

/** Strokes moved and scaled so that their ink fills a box of `width`×`height`, centred in a `side`×`side` square. */
export function fitted(strokes, side, width, height, pen) {
  const points = strokes.flat();
  const xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const factor = Math.min((width - pen) / Math.max(right - left, 1e-6), (height - pen) / Math.max(bottom - top, 1e-6), 4 * side);
  const middle = [(left + right) / 2, (top + bottom) / 2];
  return strokes.map((stroke) => stroke.map(([x, y]) => [side / 2 + factor * (x - middle[0]), side / 2 + factor * (y - middle[1])]));
}

/** Grey pixels, 0 … 255, of a drawing, for a net that takes `side`×`side` of them.
 *
 * 8×8 are as in the UCI set of digits: a bitmap of 32×32 that the digit fills from top to bottom, its inked cells
 * counted in blocks of 4×4, 0 … 16. Others are as in MNIST: the digit in the middle 20 of 28 parts, with soft edges.
 */
export function drawnPixels(strokes, side) {
  const small = side === 8;
  const fine = 4 * side;
  const pen = small ? 4 : fine * 0.09;
  const [width, height] = small ? [23, 31] : [fine * (20 / 28), fine * (20 / 28)];
  const cells = inked(fitted(strokes, fine, width, height, pen), fine, pen);
  const pixels = new Uint8Array(side * side);
  for (let y = 0; y < fine; y++) for (let x = 0; x < fine; x++) pixels[(y >> 2) * side + (x >> 2)] += cells[y * fine + x];
  return pixels.map((inkedCells) => Math.round((inkedCells * 255) / 16));
}
