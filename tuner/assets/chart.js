"use strict";
// Small pieces that every picture is made of. Text always goes in as text, never as markup.

const STAGE_COLOURS = ["#4c72b0", "#dd8452", "#55a868", "#8172b3", "#937860"];
const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

function element(name, attributes, ...children) {
  const node = document.createElement(name);
  return filled(node, attributes, children);
}

function drawn(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  return filled(node, attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.map((child) => (typeof child === "object" ? child : String(child))));
  return node;
}

function byId(id) { return document.getElementById(id); }

function count(value) {
  if (value === null || value === undefined) return "–";
  const digits = Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : 3;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

// Short enough for the side of a chart.
function tickText(value) {
  if (Math.abs(value) < 10000) return count(value);
  return value >= 1e6 ? `${count(value / 1e6)}M` : `${count(value / 1e3)}k`;
}

function percent(share) {
  return share === null || share === undefined ? "–" : (100 * share).toFixed(1) + " %";
}

function stageColour(stage) { return STAGE_COLOURS[(stage - 1) % STAGE_COLOURS.length]; }

function viridis(share) {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mix = VIRIDIS[low].map((c, i) => Math.round(c + (VIRIDIS[low + 1][i] - c) * (place - low)));
  return `rgb(${mix.join(",")})`;
}

// A scale from values to places, and where its ticks are.
function linear(low, high, from, to) {
  if (high - low < 1e-9) { low -= 0.5; high += 0.5; }
  const step = niceStep((high - low) / 5);
  const ticks = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9; value += step) ticks.push(value);
  const at = (value) => from + (value - low) / (high - low) * (to - from);
  return { at, ticks, share: (value) => (value - low) / (high - low) };
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
}

function logarithmic(low, high, from, to) {
  low = Math.log10(Math.max(low, 1));
  high = Math.log10(Math.max(high, 1));
  if (high - low < 0.2) { low -= 0.1; high += 0.1; }
  const ticks = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power += 1) {
    for (const factor of high - low < 2 ? [1, 2, 5] : [1]) {
      const tick = Math.log10(factor) + power;
      if (tick >= low - 1e-9 && tick <= high + 1e-9) ticks.push(Math.round(10 ** tick));
    }
  }
  const share = (value) => (Math.log10(Math.max(value, 1)) - low) / (high - low);
  return { at: (value) => from + share(value) * (to - from), ticks, share };
}

function padded(values, share) {
  const low = Math.min(...values), high = Math.max(...values);
  return [low - (high - low) * share, high + (high - low) * share];
}

// An empty chart with axes. The width follows the page, so that text stays readable on a phone.
function chart(place, options) {
  const width = Math.max(Math.min(place.clientWidth || 700, 1000), 300);
  const height = options.height || Math.max(Math.min(width * 0.6, 430), 260);
  const box = { left: 66, right: width - 14, top: 14, bottom: height - 46 };
  const x = options.x(box.left, box.right), y = options.y(box.bottom, box.top);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group",
    "aria-label": options.label });
  // Not more words below than there is room for.
  const every = Math.ceil(x.ticks.length * 52 / (box.right - box.left));
  x.ticks.forEach((tick, number) => {
    svg.append(drawn("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: box.top, y2: box.bottom }));
    if (number % every) return;
    svg.append(drawn("text", { class: "tick", x: x.at(tick), y: box.bottom + 17, "text-anchor": "middle" },
      tickText(tick)));
  });
  for (const tick of y.ticks) {
    svg.append(drawn("line", { class: "grid", x1: box.left, x2: box.right, y1: y.at(tick), y2: y.at(tick) }));
    svg.append(drawn("text", { class: "tick", x: box.left - 7, y: y.at(tick) + 4, "text-anchor": "end" },
      tickText(tick)));
  }
  svg.append(drawn("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  svg.append(drawn("text", { x: (box.left + box.right) / 2, y: height - 8, "text-anchor": "middle" },
    options.xLabel));
  svg.append(drawn("text", { x: 14, y: (box.top + box.bottom) / 2, "text-anchor": "middle",
    transform: `rotate(-90 14 ${(box.top + box.bottom) / 2})` }, options.yLabel));
  place.replaceChildren(svg);
  return { svg, x, y, box };
}

function steps(points) {
  return points.map(([x, y], i) => (i ? `H${x}V${y}` : `M${x},${y}`)).join("");
}

function shape(stage, x, y, size, attributes) {
  const kind = (stage - 1) % 3;
  if (kind === 0) return drawn("circle", { cx: x, cy: y, r: size, ...attributes });
  if (kind === 1) {
    const side = size * 1.8;
    return drawn("rect", { x: x - side / 2, y: y - side / 2, width: side, height: side, ...attributes });
  }
  const r = size * 1.25;
  return drawn("path", { d: `M${x},${y - r}L${x + r},${y + r * 0.8}L${x - r},${y + r * 0.8}Z`, ...attributes });
}

function symbol(stage, colour) {
  const svg = drawn("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" });
  svg.append(shape(stage, 7, 7, 5, { fill: colour }));
  return svg;
}

function stageLegend(place, stages) {
  const known = [...new Set(stages)].sort();
  place.replaceChildren(...known.map((stage) =>
    element("span", {}, symbol(stage, stageColour(stage)), `stage ${stage}`)));
}

function nothing(place, text) { place.replaceChildren(element("p", { class: "hint" }, text)); }
