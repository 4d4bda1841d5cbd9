// The page: reads the data, draws every section, keeps the chosen trial in all of them.

const data = JSON.parse(byId("data").textContent);
const trials = Object.fromEntries(data.trials.map((trial) => [trial.id, trial]));
const measured = data.trials.filter((trial) => trial.status === "completed");
const hasAccuracy = measured.some((trial) => trial.accuracy !== null);
const NAMES = { model_size: "model size, bytes that are not zero", flash: "flash with indices, bytes",
  working_memory: "working memory, bytes", macs: "multiply-accumulates", nonzeros: "non-zero parameters" };
const LIMITS = { flash: data.budget.flash, working_memory: data.budget.ram };
let chosen = null;

function yOf(trial) { return hasAccuracy ? trial.accuracy : trial.metrics[data.goals[0]]; }

function header() {
  byId("name").textContent = `Search ${data.name}`;
  const failed = data.trials.filter((trial) => trial.status === "failed").length;
  const parts = [data.data && `data: ${data.data}`,
    data.input_shape.length && `images ${data.input_shape.join(" × ")}`,
    `${data.trials.length} trials` + (data.max_trials ? ` of ${data.max_trials}` : ""),
    failed && `${failed} failed`, `${data.hours.toFixed(1)} h of training`,
    data.memory_model && `working memory counts ${data.memory_model}`];
  byId("about").textContent = parts.filter(Boolean).join(" · ");
  const best = trials[data.best];
  const card = (term, main, small) => element("div", {}, element("dt", {}, term),
    element("dd", {}, main, element("small", {}, small || "")));
  const most = (limit) => (limit === null ? "no limit" : `of ${count(limit)} B`);
  byId("answer").replaceChildren(...(best ? [
    card(data.has_budget ? "Best within the budget" : "Most accurate", `trial ${best.id}`, ""),
    card("Validation accuracy", percent(best.accuracy), ""),
    card("Flash with indices", `${count(best.metrics.flash)} B`, most(data.budget.flash)),
    card("Working memory", `${count(best.metrics.working_memory)} B`, most(data.budget.ram)),
  ] : [card("Answer", "none yet", measured.length ? "no trial is within the budget" : "no trial has completed")]));
  byId("footer").textContent = `Made by keras-sparse ${data.version} from the folder of the search.`;
  byId("problems").hidden = !data.problems.length;
  document.querySelector("#problems ul").append(...data.problems.map((text) => element("li", {}, text)));
}

function tip(event, trial) {
  const box = byId("tip");
  const lines = Object.entries(trial.configuration).slice(0, 14).map(([key, v]) => `${key}: ${value(v)}`);
  const more = Object.keys(trial.configuration).length - lines.length;
  box.replaceChildren(element("strong", {}, `trial ${trial.id}, stage ${trial.stage}: ${summaryOf(trial)}`),
    ...lines.map((line) => element("div", {}, line)), ...(more > 0 ? [element("div", {}, `… and ${more} more`)] : []));
  box.hidden = false;
  const spot = event.target.getBoundingClientRect();
  const left = Math.min(spot.right + 10, document.documentElement.clientWidth - box.offsetWidth - 8);
  box.style.left = `${Math.max(left, 8) + window.scrollX}px`;
  const above = spot.top - box.offsetHeight - 8;
  box.style.top = `${(above > 40 ? above : spot.bottom + 8) + window.scrollY}px`;
}

function point(trial, x, y, size, attributes) {
  const isMain = trial.on_front;
  const mark = shape(trial.stage, x, y, size, { class: "point" + (trial.id === chosen ? " selected" : ""),
    "data-trial": trial.id, role: "button", tabindex: isMain ? 0 : -1,
    "aria-label": `trial ${trial.id}: ${summaryOf(trial)}`, ...attributes });
  const hide = () => { byId("tip").hidden = true; };
  for (const name of ["mouseenter", "focus"]) mark.addEventListener(name, (event) => tip(event, trial));
  for (const name of ["mouseleave", "blur"]) mark.addEventListener(name, hide);
  mark.addEventListener("click", () => { hide(); choose(trial.id); byId("trial").scrollIntoView(); });
  mark.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(trial.id); }
  });
  return mark;
}

function drawFront() {
  const metric = byId("front-x").value, colour = byId("front-colour").value, place = byId("front-chart");
  const isShown = (t) => t.metrics[metric] > 0 && Number.isFinite(yOf(t)) && (t.on_front || !byId("front-only").checked);
  const shown = measured.filter(isShown);
  if (!shown.length) { nothing(place, "No trial has completed yet."); return; }
  const published = metric === "model_size" && hasAccuracy ? data.published : [];
  const xs = [...shown.map((t) => t.metrics[metric]), ...published.map((p) => p.model_size)];
  if (LIMITS[metric]) xs.push(LIMITS[metric]);
  const factor = hasAccuracy ? 100 : 1;
  const ys = [...shown.map(yOf), ...published.map((p) => p.accuracy)].map((y) => factor * y);
  const [yLow, yHigh] = padded(ys, 0.05);
  const { svg, x, y, box } = chart(place, { label: "Pareto front: every trial by size and accuracy",
    x: (from, to) => logarithmic(Math.min(...xs) * 0.8, Math.max(...xs) * 1.25, from, to),
    y: (from, to) => linear(yLow, hasAccuracy ? Math.min(yHigh, 100.5) : yHigh, from, to),
    xLabel: NAMES[metric] || metric, yLabel: hasAccuracy ? "validation accuracy, %" : data.goals[0] });
  if (LIMITS[metric]) {
    const at = x.at(LIMITS[metric]);
    svg.append(drawn("line", { x1: at, x2: at, y1: box.top, y2: box.bottom, stroke: "#777", "stroke-dasharray": "3 4" }));
    svg.append(drawn("text", { class: "tick", x: at - 5, y: box.bottom - 8, "text-anchor": "end" }, "budget"));
  }
  if (hasAccuracy) svg.append(drawn("path", { d: staircase(shown, metric, x, y), fill: "none", stroke: "#444" }));
  const memory = shown.map((t) => t.metrics.working_memory).filter((bytes) => bytes > 0);
  const scale = memory.length ? logarithmic(Math.min(...memory), Math.max(...memory), 0, 1) : null;
  const paint = (t) => (colour === "stage" || !(t.metrics.working_memory > 0) ? stageColour(t.stage)
    : viridis(1 - scale.share(t.metrics.working_memory)));
  for (const trial of [...shown].sort((a, b) => a.on_front - b.on_front)) {
    svg.append(point(trial, x.at(trial.metrics[metric]), y.at(factor * yOf(trial)), trial.on_front ? 6.5 : 4,
      { fill: paint(trial), "fill-opacity": trial.on_front ? 1 : 0.55,
        stroke: trial.on_front ? "#fff" : "none", "stroke-width": 1 }));
  }
  for (const row of published) {
    const at = [x.at(row.model_size), y.at(100 * row.accuracy)];
    svg.append(drawn("path", { d: `M${at[0] - 7},${at[1]}l7,-7l7,7l-7,7Z`, stroke: "#b03040", "stroke-width": 1.5,
      fill: row.method === "SpArSe" ? "#b03040" : "#fff", role: "img",
      "aria-label": `${row.method}: ${percent(row.accuracy)}` },
    drawn("title", {}, `${row.method}, published: ${percent(row.accuracy)} test accuracy, ${count(row.model_size)} B. ${row.note}`)));
  }
  const best = shown.find((trial) => trial.id === data.best);
  if (best) svg.append(drawn("circle", { cx: x.at(best.metrics[metric]), cy: y.at(factor * yOf(best)), r: 12,
    fill: "none", stroke: "#000", "stroke-width": 1.8, "pointer-events": "none" }));
  const legend = byId("front-legend");
  stageLegend(legend, shown.map((trial) => trial.stage));
  if (scale && colour !== "stage") {
    legend.append(...[0, 0.5, 1].map((share) => element("span", {}, symbol(1, viridis(1 - share)),
      `${count(Math.round(Math.min(...memory) * (Math.max(...memory) / Math.min(...memory)) ** share))} B of working memory`)));
  }
  if (best) legend.append(element("span", {}, "◯ best within the budget"));
  if (published.length) legend.append(element("span", {}, "◆ SpArSe, ◇ others: published, on the test set"));
}

function staircase(shown, metric, x, y) {
  let best = -1;
  const line = [...shown].sort((a, b) => a.metrics[metric] - b.metrics[metric] || b.accuracy - a.accuracy)
    .filter((trial) => { const isBetter = trial.accuracy > best; best = Math.max(best, trial.accuracy); return isBetter; });
  return steps(line.map((trial) => [x.at(trial.metrics[metric]), y.at(100 * trial.accuracy)]));
}

function drawProgress() {
  const ended = data.trials.filter((trial) => trial.status !== "running"), place = byId("progress-chart");
  if (!ended.length) { nothing(place, "No trial has ended yet."); return; }
  const across = byId("progress-x").value;
  const at = (trial, i) => (across === "number" ? i + 1 : trial.hours);
  const last = at(ended[ended.length - 1], ended.length - 1);
  const { svg, x, y } = chart(place, { label: "Hypervolume of the front after each trial", height: 260,
    x: (from, to) => linear(0, last, from, to), xLabel: across === "number" ? "trials" : "hours of training",
    y: (from, to) => linear(0, Math.max(...ended.map((t) => t.volume)) * 1.05, from, to), yLabel: "hypervolume" });
  const points = ended.map((trial, i) => [x.at(at(trial, i)), y.at(trial.volume)]);
  svg.append(drawn("path", { d: steps(points), fill: "none", stroke: "#444" }));
  ended.forEach((trial, i) => svg.append(point(trial, ...points[i], 3.5, { fill: stageColour(trial.stage) })));
  stageLegend(byId("progress-legend"), ended.map((trial) => trial.stage));
}

function drawPruning() {
  const least = Number(byId("pruning-least").value) / 100, place = byId("pruning-chart");
  byId("pruning-shown").textContent = percent(least);
  const shown = measured.filter((t) => t.metrics.parameters > 0 && t.metrics.nonzeros > 0 && (t.accuracy ?? 0) >= least);
  if (!shown.length) { nothing(place, "No trial is that accurate."); return; }
  const edges = shown.map((t) => t.metrics.parameters), left = shown.map((t) => t.metrics.nonzeros);
  const low = Math.min(...left) * 0.8, high = Math.max(...edges) * 1.25;
  const { svg, x, y } = chart(place, { label: "Parameters before pruning against those left after it",
    x: (from, to) => logarithmic(low, high, from, to), y: (from, to) => logarithmic(low, high, from, to),
    xLabel: "non-zero parameters after pruning", yLabel: "edges: parameters before" });
  svg.append(drawn("line", { x1: x.at(low), y1: y.at(low), x2: x.at(high), y2: y.at(high), stroke: "#777", "stroke-dasharray": "2 4" }));
  shown.forEach((t, i) => svg.append(point(t, x.at(left[i]), y.at(edges[i]), t.on_front ? 6 : 4,
    { fill: stageColour(t.stage), "fill-opacity": 0.8 })));
}

function drawWinner() {
  const winner = trials[data.best] || trials[data.front[0]], place = byId("winner-chart");
  if (!winner) { nothing(place, "No trial has completed yet."); return; }
  const line = lineage(trials, winner.id);
  byId("winner-hint").textContent = `Trial ${winner.id} and the trials whose weights it inherited, the oldest first.`;
  listLineage(byId("winner-steps"), line, choose);
  const known = line.filter((t) => Number.isFinite(yOf(t)) && t.metrics.model_size > 0);
  if (known.length < 2) { nothing(place, "It was trained from scratch: there is no line to draw."); return; }
  const factor = hasAccuracy ? 100 : 1, sizes = known.map((t) => t.metrics.model_size);
  const { svg, x, y } = chart(place, { label: "The winner's ancestors by size and accuracy", height: 260,
    x: (from, to) => logarithmic(Math.min(...sizes) * 0.8, Math.max(...sizes) * 1.25, from, to), xLabel: NAMES.model_size,
    y: (from, to) => linear(...padded(known.map((t) => factor * yOf(t)), 0.15), from, to),
    yLabel: hasAccuracy ? "accuracy, %" : data.goals[0] });
  const places = known.map((t) => [x.at(t.metrics.model_size), y.at(factor * yOf(t))]);
  svg.append(drawn("polyline", { points: places.map((p) => p.join(",")).join(" "), fill: "none", stroke: "#999" }));
  known.forEach((t, i) => svg.append(point(t, ...places[i], 6, { fill: stageColour(t.stage) }),
    drawn("text", { class: "tick", x: places[i][0] + 9, y: places[i][1] - 7 }, t.id)));
}

function boards() {
  const place = byId("boards-content");
  if (!data.deployments.length) {
    nothing(place, "No trial was brought to a board yet: keras-sparse deploy does it.");
    return;
  }
  const names = [...new Set(data.deployments.flatMap((row) => Object.keys(row)))];
  const rows = names.map((name) => element("tr", {}, element("th", { scope: "row" }, name.replaceAll("_", " ")),
    ...data.deployments.map((row) => element("td", {}, name.includes("accuracy") ? percent(row[name]) : value(row[name])))));
  place.replaceChildren(element("table", { class: "boards" }, element("caption", { class: "hidden" }, "Results on boards"),
    element("tbody", {}, ...rows)));
}

function choose(id) {
  const trial = trials[id];
  if (!trial) return;
  chosen = id;
  byId("trial-title").textContent = `Trial ${id}` + (id === data.best ? " (best within the budget)" : "");
  byId("trial-summary").textContent = `Stage ${trial.stage}, ${trial.epochs} epochs in ${Math.round(trial.seconds)} s: ${summaryOf(trial)}`;
  drawNetwork(byId("network"), data.networks[id]);
  listLineage(byId("lineage"), lineage(trials, id), choose);
  document.querySelector("#configuration div").replaceChildren(element("table", { class: "names" },
    ...Object.entries(trial.configuration).map(([key, v]) => element("tr", {}, element("td", {}, key), element("td", {}, value(v))))));
  document.querySelectorAll(".point").forEach((mark) => mark.classList.toggle("selected", mark.dataset.trial === id));
  showTable(id);
}

function pictures() { drawFront(); drawProgress(); drawPruning(); drawWinner(); }

const metrics = [...new Set(["model_size", ...Object.keys(NAMES), ...data.goals])]
  .filter((name) => name !== "val_error" && measured.some((trial) => trial.metrics[name] > 0));
byId("front-x").append(...metrics.map((name) => element("option", { value: name }, NAMES[name] || name)));
byId("front-colour").append(element("option", { value: "stage" }, "stage"), ...(metrics.includes("working_memory")
  ? [element("option", { value: "working_memory" }, "working memory")] : []));
document.querySelectorAll("form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));
["front-x", "front-colour", "front-only"].forEach((id) => byId(id).addEventListener("change", drawFront));
byId("progress-x").addEventListener("change", drawProgress);
byId("pruning-least").addEventListener("input", drawPruning);
const showTable = makeTable(data.trials, data.budget, choose);
header();
boards();
pictures();
showTable(null);
choose(data.best || data.front[0]);
let seen = window.innerWidth;
window.addEventListener("resize", () => { if (window.innerWidth !== seen) { seen = window.innerWidth; pictures(); } });
