// What is in an image: sizes, memory, layers.
import { $, count, fillTiles, make, number, shape } from "./elements.js";
import { nets } from "./nets.js";

const MOST = 1000; // layers listed

const recorded = ({ sound, channels, rate }) =>
  (sound ? "sound at 16 kHz" : `${channels} value${channels === 1 ? "" : "s"} of sensors at ${rate.toLocaleString("en")} Hz`);

const valuesOf = ({ facts: { output, labels } }) =>
  `${count(output.size)} value${output.size === 1 ? "" : "s"}, not classes: ${[labels.slice(0, 30).join(", ").slice(0, 500), `steps of ${number(output.scale)}`].filter(Boolean).join("; ")}`;

function show() {
  const net = nets.current;
  const { size, version, crc, input, output, tensors, layers, ram, ramLeast, formula, labels } = net.facts;
  const weights = layers.reduce((sum, layer) => sum + layer.weights, 0);
  const macs = layers.reduce((sum, layer) => sum + layer.macs, 0);
  $("inside-title").textContent = `Inside ${net.name}`;
  fillTiles($("inside-facts"), [
    ["Image, in flash", `${count(size)} bytes`],
    ["RAM, fastest kernels", `${count(ram)} bytes`],
    ["RAM, least", `${count(ramLeast)} bytes`],
    ["Weights", count(weights)],
    ["Multiply-adds", count(macs)],
    ["Input", `${shape(input)} int8`],
    ["Output", `${shape(output)} int8`],
    net.frontEnd ? ["Takes", recorded(net.frontEnd)] : ["Pixels", formula || "not said"],
    ["Format, CRC", `version ${version}, ${crc.toString(16).padStart(8, "0")}`],
    [net.givesValues ? "Gives" : "Classes", net.givesValues ? valuesOf(net) : labels.slice(0, 30).join(", ").slice(0, 500) || "not named"],
  ]);
  const rows = layers.slice(0, MOST).map((layer) => {
    const cells = [
      layer.name, layer.description, shape(tensors[layer.output]), layer.weights ? count(layer.weights) : "",
      layer.bits || "", count(layer.weightsBytes + layer.parametersBytes).replace(/^0$/, ""), layer.macs ? count(layer.macs) : "",
      count(layer.live + layer.scratch), layer.function,
    ];
    const styles = ["", "", "n", "n", "n", "n", "n", "n", "code"];
    return make("tr", {}, ...cells.map((text, i) => make("td", { textContent: text, className: styles[i] })));
  });
  $("inside-layers").tBodies[0].replaceChildren(...rows);
}

export function startInside() {
  nets.addEventListener("change", show);
}
