// What the net is to learn from: { values, pixels, label }. They belong to the net they were made for.
import { nets } from "./nets.js";

class Lessons extends EventTarget {
  constructor() {
    super();
    this.all = [];
    this.dim = false; // whether they are digits seen through a dim lens
    this._identity = "";
    nets.addEventListener("change", () => {
      if (nets.identity === this._identity) return;
      this._identity = nets.identity;
      this.clear();
    });
  }

  add(...more) {
    this.all = [...this.all, ...more];
    this._changed();
  }

  remove(lesson) {
    this.all = this.all.filter((one) => one !== lesson);
    this._changed();
  }

  clear() {
    this.all = [];
    this.dim = false;
    this._changed();
  }

  _changed() {
    this.dispatchEvent(new Event("change"));
  }
}

export const lessons = new Lessons();
