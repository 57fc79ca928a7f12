// A pad to draw on, with a pointer or with the keyboard. Strokes are lines of points in the unit square.

const WIDTH = 0.055; // of the pen, seen on the pad
const STEP = 0.04; // of an arrow key

export class Pad extends EventTarget {
  constructor(canvas) {
    super();
    this.canvas = canvas;
    this.strokes = [];
    this.cursor = null;
    this._stroke = null;
    this._pointer = null;
    canvas.addEventListener("pointerdown", (event) => this._down(event));
    canvas.addEventListener("pointermove", (event) => this._move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this._up(event));
    canvas.addEventListener("keydown", (event) => this._key(event));
    canvas.addEventListener("blur", () => this._lift());
    this._draw();
  }

  get empty() {
    return this.strokes.length === 0;
  }

  clear() {
    this.strokes = [];
    this._stroke = null;
    this._changed();
  }

  undo() {
    this.strokes = this.strokes.slice(0, -1);
    this._stroke = null;
    this._changed();
  }

  show(strokes) {
    this.strokes = strokes;
    this._stroke = null;
    this._changed();
  }

  _place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  _down(event) {
    if (event.button > 0 || this._pointer !== null) return;
    event.preventDefault();
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this._pointer = event.pointerId;
    this.cursor = null;
    this._begin(this._place(event));
  }

  _move(event) {
    if (event.pointerId !== this._pointer) return;
    const moves = event.getCoalescedEvents?.() ?? [];
    for (const one of moves.length ? moves : [event]) this._stroke?.push(this._place(one));
    this._changed();
  }

  _up(event) {
    if (event.pointerId !== this._pointer) return;
    this._pointer = null;
    this._lift();
  }

  _begin(point) {
    this._stroke = [point];
    this.strokes = [...this.strokes, this._stroke];
    this._changed();
  }

  _lift() {
    this._stroke = null;
  }

  _key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const move = moves[event.key];
    if (move) {
      const [x, y] = this.cursor ?? [0.5, 0.5];
      this.cursor = [Math.max(0, Math.min(1, x + STEP * move[0])), Math.max(0, Math.min(1, y + STEP * move[1]))];
      this._stroke?.push(this.cursor);
      this._changed();
    } else if (event.key === " ") {
      if (this._stroke) this._lift();
      else this._begin((this.cursor ??= [0.5, 0.5]));
      this._draw();
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.clear();
    } else if (event.key === "Enter") {
      this.dispatchEvent(new Event("enter"));
    } else return;
    event.preventDefault();
  }

  _changed() {
    this._draw();
    this.dispatchEvent(new Event("change"));
  }

  _draw() {
    const { canvas } = this;
    const context = canvas.getContext("2d");
    const size = canvas.width;
    context.clearRect(0, 0, size, size);
    context.strokeStyle = context.fillStyle = "#fff";
    context.lineWidth = WIDTH * size;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of this.strokes) {
      context.beginPath();
      context.moveTo(stroke[0][0] * size, stroke[0][1] * size);
      for (const [x, y] of stroke) context.lineTo(x * size, y * size);
      context.stroke();
    }
    if (this.cursor) {
      context.strokeStyle = this._stroke ? "#f59e0b" : "#2dd4bf";
      context.lineWidth = 4;
      context.beginPath();
      context.arc(this.cursor[0] * size, this.cursor[1] * size, 14, 0, 2 * Math.PI);
      context.stroke();
    }
  }
}
