// Which net the page works with. Parts of the page listen to "change".
import { PageNet } from "./engine.js";

const SHIPPED = {
  digits: { name: "Digits", file: "nets/digits.fbit" },
  cifar10: { name: "Pictures (CIFAR-10)", file: "nets/cifar10.fbit" },
};

class Nets extends EventTarget {
  constructor() {
    super();
    this.current = null;
    this.key = ""; // digits, cifar10, own
    this.identity = ""; // stays when it learns, changes with another file
    this._files = 0;
    this._asked = 0;
    this._opened = new Map(); // as shipped, or as the user gave it
  }

  async _fetch(file) {
    const answer = await fetch(new URL(`../${file}`, import.meta.url));
    if (!answer.ok) throw new Error(`${file} could not be loaded: ${answer.status}`);
    return new Uint8Array(await answer.arrayBuffer());
  }

  /** Use a net by its key: digits, cifar10, own. If another is asked for meanwhile, that one is used. */
  async use(key) {
    const asked = (this._asked += 1);
    if (!this._opened.has(key)) {
      const { name, file } = SHIPPED[key];
      this._opened.set(key, await PageNet.open(name, await this._fetch(file)));
    }
    if (asked === this._asked) this._set(key, this._opened.get(key), this._identityOf(key));
  }

  _identityOf(key) {
    return key === "own" ? `own ${this._files}` : key;
  }

  /** Open what a user gave; what was there stays if the core refuses it. */
  async open(name, bytes) {
    const net = await PageNet.open(name, bytes);
    this._asked += 1; // what is still being loaded comes too late
    this._opened.get("own")?.close();
    this._opened.set("own", net);
    this._files += 1;
    this._set("own", net, this._identityOf("own"));
  }

  /** The current net has learned, or has gone back. */
  replace(net) {
    this._opened.set(this.key, net);
    this._set(this.key, net, this.identity);
  }

  /** A net has learned. If another one is looked at meanwhile, it waits for when it is chosen again. */
  learned(identity, net) {
    const key = identity.split(" ")[0];
    if (identity === this.identity) this.replace(net);
    else if (identity === this._identityOf(key)) this._opened.set(key, net);
  }

  _set(key, net, identity) {
    this.key = key;
    this.identity = identity;
    this.current = net;
    this.dispatchEvent(new Event("change"));
  }

  /** Digits that no net was trained on, { pixels, label }, in the order of the file. */
  async digits() {
    const data = await this._fetch("nets/digits.bin");
    return Array.from({ length: data.length / 65 }, (_, i) => ({ pixels: data.slice(65 * i, 65 * i + 64), label: data[65 * i + 64] }));
  }
}

export const nets = new Nets();
