// The table of trials: sorted by a click on a heading, filtered by a budget.

const COLUMNS = [
  ["trial", (t) => t.number, (t) => t.id],
  ["accuracy", (t) => t.accuracy, (t) => percent(t.accuracy)],
  ["model size, B", (t) => t.metrics.model_size, null],
  ["flash with indices, B", (t) => t.metrics.flash, null],
  ["RAM, B", (t) => t.metrics.working_memory, null],
  ["MACs", (t) => t.metrics.macs, null],
  ["parameters", (t) => t.metrics.parameters, null],
  ["non-zero", (t) => t.metrics.nonzeros, null],
  ["stage", (t) => t.stage, null],
  ["reference", (t) => t.reference, (t) => t.reference || "–"],
  ["epochs", (t) => t.epochs, null],
  ["seconds", (t) => t.seconds, (t) => count(Math.round(t.seconds))],
];

function makeTable(trials, budget, choose) {
  const columns = COLUMNS.filter(([, get]) => trials.some((t) => get(t) !== undefined && get(t) !== null));
  const order = { column: 1, down: true };
  const head = document.querySelector("#trials thead tr"), body = document.querySelector("#trials tbody");
  const inputs = ["filter-ram", "filter-flash", "filter-accuracy", "filter-front"].map(byId);
  inputs[0].value = budget.ram ?? "";
  inputs[1].value = budget.flash ?? "";
  inputs[2].value = budget.accuracy === null ? "" : 100 * budget.accuracy;

  function limit(input) {
    const text = input.value.trim();
    const number = Number(text);
    const isWrong = text !== "" && !(number >= 0);
    input.setAttribute("aria-invalid", String(isWrong));
    return text === "" || isWrong ? null : number;
  }

  function passes(trial) {
    const [ram, flash, accuracy] = inputs.slice(0, 3).map(limit);
    const within = (most, metric) => most === null || (trial.metrics[metric] ?? Infinity) <= most;
    const isAccurate = accuracy === null || (trial.accuracy ?? -1) * 100 >= accuracy;
    const isShown = !inputs[3].checked || trial.on_front;
    return isShown && within(ram, "working_memory") && within(flash, "flash") && isAccurate;
  }

  function compare(a, b) {
    const [x, y] = [a, b].map(columns[order.column][1]);
    if (x === y) return a.number - b.number;
    if (x === null || x === undefined) return 1; // what is not known comes last
    if (y === null || y === undefined) return -1;
    return (x < y ? -1 : 1) * (order.down ? -1 : 1);
  }

  function show(selected) {
    columns.forEach((_, i) => head.children[i].setAttribute("aria-sort",
      i !== order.column ? "none" : order.down ? "descending" : "ascending"));
    const rows = trials.filter(passes).sort(compare);
    body.replaceChildren(...rows.map((trial) => {
      const row = element("tr", { "data-trial": trial.id });
      columns.forEach(([, get, text], i) => {
        const shown = text ? text(trial) : count(get(trial));
        row.append(i ? element("td", {}, shown)
          : element("td", {}, element("button", { type: "button", onclick: () => choose(trial.id) }, shown)));
      });
      row.classList.toggle("selected", trial.id === selected);
      return row;
    }));
    byId("table-count").textContent = `${rows.length} of ${trials.length} trials`;
  }

  let current = null;
  columns.forEach(([name], i) => {
    const press = () => {
      order.down = order.column === i ? !order.down : i === 1;
      order.column = i;
      show(current);
    };
    head.append(element("th", { scope: "col" }, element("button", { type: "button", onclick: press }, name)));
  });
  inputs.forEach((input) => input.addEventListener("input", () => show(current)));
  return (selected) => { current = selected; show(selected); };
}
