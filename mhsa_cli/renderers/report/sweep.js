// A sweep: curves with bands, onsets, labels, circuits, claims, and the trials chosen to be shown.

// One small chart a setting, all on the same axes; the medians of the others lie behind it.
function settingCharts(settings) {
  const drawn = settings.filter(({ curve }) => curve && curve.steps.length);
  if (!drawn.length) return null;
  const last = Math.max(1, ...drawn.map(({ curve }) => curve.steps[curve.steps.length - 1]));
  const first = drawn.map(({ curve }) => curve.median.find(isNumber)).filter(isNumber);
  const most = drawn.flatMap(({ curve }) => [...curve.high, ...curve.median]).filter(isNumber).reduce((a, b) => Math.max(a, b), 0);
  const high = Math.min(most, MOST * Math.max(...first, 0)) * 1.04 || 1;
  const medianOf = ({ curve }) => curve.steps.map((step, i) => [step, curve.median[i]]);
  const charts = drawn.map((setting) => {
    const chart = timeChart({
      label: `${setting.name}: loss over training, median at the end ${nats(setting.median_loss)} nats`, height: 150, last,
      range: () => [0, high],
      drawMarks: (plot) => {
        for (const other of drawn) if (other !== setting) plot.layer.append(draw("path", { class: "line ghost", d: linePath(plot, medianOf(other)) }));
        plot.layer.append(draw("path", { class: "band", d: bandPath(plot, setting.curve.steps, setting.curve.low, setting.curve.high) }));
        plot.layer.append(draw("path", { class: "line median", d: linePath(plot, medianOf(setting)) }));
      },
    });
    return make("figure", {}, make("figcaption", {}, make("strong", { text: setting.name }), make("span", { class: "fine", text: settingWords(setting) })), chart.node);
  });
  return sweepPart("Loss over training", "The trial of median final loss, and quartiles over seeds, in nats; the other settings in grey." + (most > high ? " Higher losses are cut off." : ""), make("div", { class: "multiples" }, ...charts));
}

function settingWords(setting) {
  const parts = [`loss ${nats(setting.median_loss)}`];
  if (setting.solved) parts.push(`solved by ${setting.solved[0]} of ${setting.solved[1]}`);
  if (setting.finished !== setting.trials) parts.push(`finished ${setting.finished} of ${setting.trials}`);
  return parts.join(" \u00b7 ");
}

function sweepPart(title, note, ...children) {
  return make("section", { class: "part" }, make("h2", { text: title }), note ? make("p", { class: "fine", text: note }) : null, ...children);
}

function summaryTable(settings) {
  const columns = ["setting", "trials", "finished", "solved", "median loss", "accuracy"];
  const rows = settings.map((one) => [one.name, count(one.trials), count(one.finished), one.solved ? `${one.solved[0]} of ${one.solved[1]}` : "\u2013", nats(one.median_loss), percent(one.accuracy)]);
  return make("div", { class: "scroll" }, make("table", { class: "summary" },
    make("thead", {}, make("tr", {}, ...columns.map((text) => make("th", { scope: "col", text })))),
    make("tbody", {}, ...rows.map(([name, ...rest]) => make("tr", {}, make("th", { scope: "row", text: name }), ...rest.map((text) => make("td", { text })))))));
}

// A dot and its interval on a track from 0 to most.
function interval(low, middle, high, most) {
  const x = (value) => (value / (most || 1)) * 100;
  const line = (name, from, to) => draw("line", { class: name, x1: from, x2: to, y1: 7, y2: 7, "vector-effect": "non-scaling-stroke" });
  const marks = [line("track", 0, 100)];
  if (isNumber(low)) marks.push(line("span", x(low), x(high ?? most)));
  if (isNumber(middle)) marks.push(line("dot", x(middle), x(middle)));
  return draw("svg", { class: "interval", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" }, ...marks);
}

// A table for each label: a row a setting, with its figure, its interval and the count of seeds.
function intervalTables(title, note, settings, rowsOf, words, most) {
  const found = new Map();
  for (const setting of settings) {
    for (const row of rowsOf(setting)) {
      if (!found.has(row.name)) found.set(row.name, []);
      found.get(row.name).push({ ...row, setting: setting.name });
    }
  }
  const tables = [...found].filter(([, rows]) => rows.some((row) => row.k > 0)).map(([name, rows]) => make("table", { class: "interval-table" },
    make("caption", { text: name }),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, make("th", { scope: "row", text: row.setting }),
      make("td", { class: "plot" }, interval(row.low, row.middle, row.high, most)), make("td", { class: "figure", text: words(row) }))))));
  return tables.length ? sweepPart(title, note, make("div", { class: "tables" }, ...tables)) : null;
}

function shareWords({ k, n, low, high }) {
  return `${k} of ${n}${isNumber(low) ? ` (${percent(low)} to ${percent(high)})` : ""}`;
}

function onsetWords({ middle, low, high, k, n }) {
  if (!isNumber(middle)) return `${k} of ${n}`;
  const range = isNumber(low) ? ` (${count(low)} to ${isNumber(high) ? count(high) : "the end or later"})` : "";
  return `step ${count(middle)}${range}, ${k} of ${n}`;
}

const shareRow = ([name, k, n, low, high]) => ({ name, k, n, low, high, middle: n ? k / n : null });
const onsetRow = ([name, middle, low, high, k, n]) => ({ name, middle, low, high, k, n });

// Buttons for the chosen trials; the one that is pressed is shown below them.
function trialsPart(shown, runs) {
  if (!shown.length) return null;
  const place = make("div", {});
  let current = null;
  const buttons = shown.map((trial) => {
    const button = make("button", {
      type: "button", class: trial.run === null ? "trial failed-trial" : "trial", "aria-pressed": "false", text: `seed ${trial.seed}, ${trial.why}`,
      on: { click: () => choose(trial, button) },
    });
    return button;
  });
  function choose(trial, button) {
    current?.stop();
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
    current = trial.run === null ? null : runsView([runs[trial.run]], "h2");
    const error = trial.error ? make("p", { class: "caution", text: trial.error }) : null;
    place.replaceChildren(...[error, current?.node].filter(Boolean));
    if (!place.childNodes.length) place.append(make("p", { class: "caution", text: trial.status }));
  }
  const groups = [...new Set(shown.map((trial) => trial.setting))].map((setting) => make("div", { role: "group", "aria-label": setting },
    make("h3", { text: setting }), ...buttons.filter((_, i) => shown[i].setting === setting)));
  choose(shown[0], buttons[0]);
  return sweepPart("Trials", "The median of each setting, its extremes and its failures.", make("div", { class: "trials" }, ...groups), place);
}

function sweepView({ sweep, runs }) {
  const { settings } = sweep;
  const ends = settings.flatMap(({ curve, onsets }) => [...curve.steps, ...onsets.map(onsetRow).flatMap((row) => [row.middle, row.high])]);
  const last = ends.filter(isNumber).reduce((a, b) => Math.max(a, b), 1);
  return make("div", { class: "run" },
    make("header", { class: "about" }, make("div", { class: "story" }, make("h1", { text: sweep.name }),
      sweep.axes.length ? make("p", { class: "task", text: `sweep over ${names(sweep.axes)}` }) : null,
      sweep.claims.length ? make("ul", { class: "claims" }, ...sweep.claims.map((text) => make("li", { text }))) : null),
      make("div", { class: "about-facts" }, factList(sweep.facts, "facts"))),
    settingCharts(settings),
    sweepPart("Settings", "", summaryTable(settings)),
    intervalTables("Onsets", `The step at which the first head of a label forms: median over seeds with its 95% interval, on a scale from 0 to ${count(last)}.`, settings, ({ onsets }) => onsets.map(onsetRow), onsetWords, last),
    intervalTables("Labels", "Seeds that have a head with the label, with 95% Wilson intervals.", settings, ({ labels }) => labels.map(shareRow), shareWords, 1),
    intervalTables("Circuits", "Seeds by circuit, with 95% Wilson intervals.", settings, ({ circuits }) => circuits.map(shareRow), shareWords, 1),
    trialsPart(sweep.shown, runs));
}
