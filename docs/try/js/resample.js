// Sound at another rate: runtime/audio/resample.py in JavaScript. Its comment says what the filter does.

const ZEROS = 32, BETA = 9, EDGE = 0.92, PHASES_MOST = 4096;

const gcd = (a, b) => (b ? gcd(b, a % b) : a);

/** The modified Bessel function of order 0, by its series. */
function bessel(x) {
  let sum = 1, term = 1;
  for (let k = 1; term > 1e-18 * sum; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));

/** The low pass of one phase; it sums to 1. */
function kernel(shift, lower, reach) {
  const values = Float64Array.from({ length: 2 * reach }, (_, i) => {
    const at = i + 1 - reach - shift;
    return sinc(at * lower) * bessel(BETA * Math.sqrt(Math.max(0, 1 - (at / reach) ** 2))) / bessel(BETA);
  });
  const sum = values.reduce((a, b) => a + b, 0);
  return values.map((value) => value / sum);
}

/** Float64Array of samples at `rate` to one at the rate `to`. */
export function resample(samples, rate, to) {
  if (rate === to || !samples.length) return samples;
  const common = gcd(rate, to);
  const [up, down] = [to / common, rate / common];
  const lower = Math.min(1, to / rate) * EDGE;
  const reach = Math.ceil(ZEROS / lower);
  const phases = Math.min(up, PHASES_MOST);
  const kernels = new Array(phases); // made when one is needed
  const found = new Float64Array(Math.ceil(samples.length * up / down));
  for (let m = 0; m < found.length; m++) {
    const place = m * down;
    const whole = Math.floor(place / up);
    const phase = Math.floor((place % up) * phases / up);
    const taps = (kernels[phase] ??= kernel(phase / phases, lower, reach));
    let sum = 0;
    const first = whole + 1 - reach;
    for (let i = Math.max(0, -first), end = Math.min(taps.length, samples.length - first); i < end; i++) sum += samples[first + i] * taps[i];
    found[m] = sum;
  }
  return found;
}
