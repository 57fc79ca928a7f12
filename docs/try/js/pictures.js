// Pictures and camera frames to the pixels a net takes: the largest centred part of its shape, scaled down.
import { FlipbitError } from "../core/flipbit.js";

const LARGEST = 50_000_000; // pixels

/** Pixels that the head of a PNG states; 0 for other files. */
async function statedPixels(file) {
  const head = await file.slice(0, 24).arrayBuffer().catch(() => new ArrayBuffer(0));
  const view = new DataView(head);
  return head.byteLength === 24 && view.getUint32(0) === 0x89504e47 ? view.getUint32(16) * view.getUint32(20) : 0;
}

const tooLarge = (file) => new FlipbitError("", `${file.name} has more than 50 million pixels: make it smaller first`);

/** A picture from a file; throws if the browser cannot read it. */
export async function readPicture(file) {
  if (await statedPixels(file) > LARGEST) throw tooLarge(file);
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  } catch {
    throw new FlipbitError("", `${file.name}: not a picture that this browser can read; try a PNG or JPEG file`);
  }
  if (bitmap.width * bitmap.height > LARGEST) {
    bitmap.close();
    throw tooLarge(file);
  }
  return bitmap;
}

/** White, as on paper and as in runtime/data/pictures.py, behind what is transparent. */
export function onWhite(canvas, ...place) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(...place);
  return context;
}

/** Interleaved pixels of a picture, canvas or video, as the net's input has them; grey where it has one channel. */
export function picturePixels(source, { height, width, channels }) {
  const [w, h] = [source.videoWidth || source.width, source.videoHeight || source.height];
  const factor = Math.min(w / width, h / height);
  const [cutWidth, cutHeight] = [width * factor, height * factor];
  const canvas = new OffscreenCanvas(width, height);
  const context = onWhite(canvas, source, (w - cutWidth) / 2, (h - cutHeight) / 2, cutWidth, cutHeight, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const pixels = new Uint8Array(height * width * channels);
  for (let i = 0; i < height * width; i++) {
    const r = data[4 * i], g = data[4 * i + 1], b = data[4 * i + 2];
    if (channels === 3) {
      pixels[3 * i] = r;
      pixels[3 * i + 1] = g;
      pixels[3 * i + 2] = b;
    } else pixels[i] = Math.round(0.299 * r + 0.587 * g + 0.114 * b);
  }
  return pixels;
}

/** Whether the border of a grey picture is lighter than its middle grey: a pen on paper. */
export function isDarkOnLight(pixels, { height, width }) {
  let sum = 0, cells = 0;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (y > 0 && y < height - 1 && x > 0 && x < width - 1) continue;
      sum += pixels[y * width + x];
      cells += 1;
    }
  }
  return sum / cells > 127;
}

export const inverted = (pixels) => pixels.map((value) => 255 - value);

/** Pixels (interleaved) onto a canvas, one for one. */
export function paintPixels(canvas, pixels, { height, width, channels }) {
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  for (let i = 0; i < height * width; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = pixels[channels === 3 ? 3 * i + c : i];
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}
