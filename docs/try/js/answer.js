// What the net says of an input: a class with scores, or values.
import { $, make, number, percent } from "./elements.js";

const ROWS = 12; // of scores or values

/** Shares of 1 of logits. */
export function softmax(real) {
  const largest = real.reduce((a, b) => Math.max(a, b));
  const powers = real.map((value) => Math.exp(value - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((value) => value / sum);
}

/** Indices of the largest values, largest first. */
function leading(values, most) {
  const found = [];
  values.forEach((value, i) => {
    if (found.length === most && value <= values[found.at(-1)]) return;
    found.splice(found.findLastIndex((other) => values[other] >= value) + 1, 0, i);
    found.length = Math.min(found.length, most);
  });
  return found;
}

/** In a few words, for a line of text: the class and its score, or the first values. */
export function inWords(net, { real, best }) {
  if (!net.givesValues) return `${net.label(best)}, ${percent(softmax(real)[best])}`;
  return real.slice(0, 4).map(number).join(", ") + (real.length > 4 ? ` … (${real.length.toLocaleString("en")} values)` : "");
}

function rows(list, wanted) {
  if (list.children.length !== wanted.length) {
    list.replaceChildren(...wanted.map(() =>
      make("li", {}, make("span"), make("span", { className: "bar" }, make("i")), make("span", { className: "n" }))));
  }
  wanted.forEach(({ name, share, text, best }, row) => {
    const item = list.children[row];
    item.className = best ? "best" : "";
    item.children[0].textContent = name;
    item.children[1].firstChild.style.width = `${100 * share}%`;
    item.children[2].textContent = text;
  });
}

function showClasses(net, { real, best }, given) {
  const shares = softmax(real);
  $("answer-class").textContent = given ? net.label(best) : "–";
  $("answer-score").textContent = given ? percent(shares[best]) : "";
  const order = shares.length > ROWS ? leading(shares, ROWS) : shares.map((_, i) => i);
  rows($("scores"), order.map((index) => ({
    name: net.label(index), share: given ? shares[index] : 0, text: given ? percent(shares[index]) : "", best: given && index === best,
  })));
}

/** Bars reach from the least value that the output can have to the largest. */
function showValues(net, { real }, given) {
  const { output } = net.facts;
  const [low, high] = [-128, 127].map((value) => (value - output.zeroPoint) * output.scale);
  const shown = real.slice(0, ROWS);
  const named = (index) => (net.facts.labels[index] === undefined ? `value ${index + 1}` : net.label(index));
  $("answer-class").textContent = given ? number(real[0]) : "–";
  const more = real.length > ROWS ? `the first ${ROWS} of ${real.length.toLocaleString("en")} values` : real.length > 1 ? `the first of ${real.length} values` : "";
  $("answer-score").textContent = given ? more : "";
  rows($("scores"), shown.map((value, index) => ({
    name: named(index), share: given ? (value - low) / (high - low) : 0, text: given ? number(value) : "", best: false,
  })));
  $("values-note").textContent = `Bars reach from ${number(low)} to ${number(high)}, what the net's output can hold; a step of int8 is ${number(output.scale)}.`;
}

export function showAnswer(net, result, given) {
  const { facts, givesValues } = net;
  const list = $("scores");
  list.classList.toggle("words", givesValues || net.classes().some((name) => name.length > 3));
  list.classList.toggle("values", givesValues);
  list.setAttribute("aria-label", givesValues ? "Values" : "Scores of classes");
  $("values-note").hidden = !givesValues;
  (givesValues ? showValues : showClasses)(net, result, given);
  $("answer").classList.toggle("long", $("answer-class").textContent.length > 8);
  $("answer-facts").textContent = `${facts.size.toLocaleString("en")} bytes of net, ${facts.ram.toLocaleString("en")} bytes of RAM, `
    + `${result.milliseconds.toFixed(2)} ms in this browser`;
}
