// Lines of shares over steps.
import { makeSvg, percent } from "./elements.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [520, 220, 44, 26, 34];

/** `lines`: [{ name, values, style }], style a, b or c of style.css; `most`: steps the axis has room for; `top`: the
 * largest share it has room for. */
export function drawChart(box, lines, most, axis = "step", top = 1) {
  const svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const last = lines.map(({ name, values }) => `${name} ${percent(values.at(-1) ?? 0)}`).join(", ");
  svg.setAttribute("aria-label", `Shares by ${axis}, now: ${last}`);
  const x = (step) => LEFT + (step / Math.max(1, most)) * (WIDTH - LEFT - 10);
  const y = (share) => TOP + (1 - share / top) * (HEIGHT - BOTTOM - TOP);
  for (const share of [0, 0.25, 0.5, 0.75, 1].map((part) => part * top)) {
    svg.append(makeSvg("line", { class: "grid", x1: LEFT, x2: WIDTH - 10, y1: y(share), y2: y(share) }));
    svg.append(makeSvg("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`));
  }
  svg.append(makeSvg("text", { x: LEFT, y: HEIGHT - 6 }, "0"));
  svg.append(makeSvg("text", { x: WIDTH - 10, y: HEIGHT - 6, "text-anchor": "end" }, `${axis} ${most}`));
  let at = LEFT;
  for (const { name, values, style } of lines) {
    const points = values.map((share, step) => `${x(step).toFixed(1)},${y(share).toFixed(1)}`).join(" ");
    svg.append(makeSvg("polyline", { class: style, points }));
    const text = makeSvg("text", { class: `key-${style}`, x: at, y: 16 }, `● ${name}`);
    svg.append(text);
    at += 7.2 * (name.length + 4);
  }
  box.replaceChildren(svg);
}
