// The paper's toy problem, equation (8), as in train/theory/toy_problem.py: three valleys, the deepest at 4.75; a weight
// on a grid of step ½ that starts at 4.0. Gradients are f′ + σZ/√batch.

export const DELTA = 0.5, START = 4.0, BEST = [4.5, 5.0];

export const loss = (w) => (w < 1 ? w * w + 2 : w < 3.5 ? (w - 2.5) ** 2 + 0.75 : (w - 4.75) ** 2 + 0.19);
export const slope = (w) => 2 * (w - (w < 1 ? 0 : w < 3.5 ? 2.5 : 4.75));

/** Uniform numbers below 1 and normal ones, from a seed (mulberry32, Box and Muller). */
export function generator(seed) {
  let state = seed >>> 0, spare = null;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const normal = () => {
    if (spare !== null) {
      const kept = spare;
      spare = null;
      return kept;
    }
    const radius = Math.sqrt(-2 * Math.log(1 - uniform())), angle = 2 * Math.PI * uniform();
    spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  };
  return { uniform, normal };
}

/** A weight that learns, and how often it stood on each point of the grid. */
export class Chain {
  /** `bufferBits`: levels between two points of the grid are 2^bufferBits, each step rounded to one by chance; null: BC. */
  constructor({ bufferBits, rate, noise, batch, seed = 1 }) {
    Object.assign(this, { bufferBits, rate });
    this.noise = noise / Math.sqrt(batch);
    this.random = generator(seed);
    this.fine = bufferBits === null ? 0 : DELTA / 2 ** bufferBits;
    this.w = START;
    this.visits = new Map();
    this.steps = 0;
  }

  /** The weight as the net uses it, a point of the grid in units of ½. */
  get point() {
    return Math.floor(this.w / DELTA + 0.5);
  }

  run(steps) {
    const { random, rate, noise, fine } = this;
    for (let i = 0; i < steps; i++) {
      const move = rate * (slope(this.point * DELTA) + noise * random.normal());
      if (fine) this.w = fine * (Math.round(this.w / fine) + Math.floor(random.uniform() - move / fine));
      else this.w -= move;
      this.visits.set(this.point, (this.visits.get(this.point) ?? 0) + 1);
    }
    this.steps += steps;
  }

  share(w) {
    return this.steps ? (this.visits.get(Math.round(w / DELTA)) ?? 0) / this.steps : 0;
  }

  /** Share of the steps on the two best points. */
  get best() {
    return BEST.reduce((sum, w) => sum + this.share(w), 0);
  }
}
