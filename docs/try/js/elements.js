// Short ways to the page's elements, and messages to whoever looks at it.

export const $ = (id) => document.getElementById(id);

/** An element with properties and children; text is text, never markup. */
export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

export function makeSvg(name, attributes = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

/** Say what went wrong, above everything; empty: nothing did. */
export function tell(message) {
  const box = $("trouble");
  box.hidden = !message;
  if (!message) return;
  const close = make("button", { type: "button", textContent: "Close" });
  close.addEventListener("click", () => tell(""));
  box.replaceChildren(make("span", { textContent: message }), close);
}

/** A listener that reports what it throws. */
export function guarded(action) {
  return async (...given) => {
    try {
      await action(...given);
    } catch (error) {
      console.info(error);
      tell(error.message);
    }
  };
}

/** What the user does; what went wrong before is read by then. */
export const on = (id, event, action) => $(id).addEventListener(event, guarded((...given) => {
  tell("");
  return action(...given);
}));
export const count = (number) => Math.round(number).toLocaleString("en");
export const percent = (share) => `${(100 * share).toFixed(share > 0.9995 || share < 0.0005 ? 0 : 1)} %`;

/** A real number in four digits. */
export function number(value) {
  const size = Math.abs(value);
  const text = size && (size < 1e-3 || size >= 1e6) ? value.toExponential(3) : String(Number(value.toPrecision(4)));
  return text.replace("-", "−").replace("e−", "e-");
}

export const shape = ({ rank, height, width, channels }) => (rank === 3 ? `${height}×${width}×${channels}` : `${channels}`);

/** Tiles of facts: [name, value] pairs. */
export function fillTiles(list, facts) {
  list.replaceChildren(...facts.map(([name, value]) =>
    make("div", { className: value.length > 40 ? "wide" : "" }, make("dt", { textContent: name }), make("dd", { textContent: value }))));
}
