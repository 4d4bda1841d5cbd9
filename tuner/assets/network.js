// The drawing of a network, and the line of trials that led to it.

const FEW = 8; // changes that are shown at once
const BOX = { width: 250, height: 58, column: 290, row: 88 };

function drawNetwork(place, network) {
  if (!network) { nothing(place, "The network of this trial was not recorded."); return; }
  const points = [...network.boxes.map((box) => [box.x, box.row]), ...network.edges.flat()];
  const columns = points.map((point) => point[0]), rows = points.map((point) => point[1]);
  const low = Math.min(...columns), high = Math.max(...columns), last = Math.max(...rows);
  const width = (high - low) * BOX.column + BOX.width + 20;
  const height = last * BOX.row + BOX.height + 20;
  const centre = ([x, row]) => [(x - low) * BOX.column + BOX.width / 2 + 10, row * BOX.row + BOX.height / 2 + 10];
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": network.boxes.map((box) => `${box.title}: ${box.operation}, ${box.cost}`).join("; ") });
  for (const edge of network.edges) {
    const ways = edge.map(centre).flatMap(([x, y], i) => {
      const half = BOX.height / 2;
      if (i === 0) return [[x, y + half]];
      return i === edge.length - 1 ? [[x, y - half]] : [[x, y - half], [x, y + half]];
    });
    svg.append(drawn("polyline", { points: ways.map((p) => p.join(",")).join(" "), fill: "none", stroke: "#777" }));
    const [x, y] = ways[ways.length - 1];
    svg.append(drawn("path", { d: `M${x},${y}l-4,-8h8Z`, fill: "#777" }));
  }
  for (const box of network.boxes) {
    const [x, y] = centre([box.x, box.row]);
    svg.append(drawn("rect", { x: x - BOX.width / 2, y: y - BOX.height / 2, width: BOX.width,
      height: BOX.height, rx: 8, fill: box.colour, stroke: "#444" }));
    [[box.title, -14, 700], [box.operation, 4, 400], [box.cost, 21, 400]].forEach(([line, down, weight]) => {
      const text = line.replace(/ {2,}/g, " · ");
      svg.append(drawn("text", { x, y: y + down, "text-anchor": "middle", "font-weight": weight,
        // A long text is pressed together rather than cut off.
        textLength: text.length > 38 ? BOX.width - 12 : null, lengthAdjust: "spacingAndGlyphs" }, text));
    });
  }
  place.replaceChildren(element("p", { class: "hint" }, network.caption.replace(/ {2,}/g, " · ")), svg);
  place.scrollLeft = Math.max(0, centre([0, 0])[0] - place.clientWidth / 2);
}

function lineage(trials, id) {
  const line = [];
  for (let trial = trials[id]; trial; trial = trials[trial.reference]) line.unshift(trial);
  return line;
}

function summaryOf(trial) {
  if (trial.status !== "completed") return `${trial.status}${trial.reason ? ": " + trial.reason : ""}`;
  const parts = [];
  if (trial.accuracy !== null) parts.push(percent(trial.accuracy));
  const named = { model_size: "model", flash: "flash with indices", working_memory: "RAM" };
  for (const [metric, label] of Object.entries(named)) {
    if (metric in trial.metrics) parts.push(`${label} ${count(trial.metrics[metric])} B`);
  }
  return parts.join(", ");
}

function value(something) {
  if (something === null || something === undefined) return "–";
  return typeof something === "number" ? count(something) : String(something);
}

function listLineage(place, line, choose) {
  place.replaceChildren(...line.map((trial, number) => {
    const name = element("button", { type: "button", onclick: () => choose(trial.id) }, `trial ${trial.id}`);
    const item = element("li", {}, name, ` (stage ${trial.stage}): ${summaryOf(trial)}`);
    const changes = number ? trial.changes : [];
    if (changes.length) {
      const texts = changes.map(([key, from, to]) => `${key}: ${value(from)} → ${value(to)}`);
      item.append(element("p", {}, texts.slice(0, FEW).join("; ")));
      if (texts.length > FEW) {
        item.append(element("details", {}, element("summary", {}, `and ${texts.length - FEW} more changes`),
          element("p", {}, texts.slice(FEW).join("; "))));
      }
    }
    return item;
  }));
}
