// The loss over training and every head's lift over training, with a cursor at the step.

const CURVE_COLORS = { train: "var(--train)", eval: "var(--eval)" };

function finite(points) {
  return points.map(([, value]) => value).filter(isNumber);
}

const MOST = 3; // losses are drawn up to this many times the first: a diverged step does not flatten the rest

function lossRange(run, log) {
  const levels = run.levels.map(([, value]) => value).filter(isNumber);
  const values = [...finite(run.curve.train), ...finite(run.curve.eval)];
  const first = [finite(run.curve.eval)[0], finite(run.curve.train)[0], ...levels].filter(isNumber);
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  const high = Math.min(Math.max(most, ...levels), MOST * Math.max(...first, 0)) * 1.04 || 1;
  if (!log) return [0, high];
  const least = values.filter((value) => value > 0).reduce((a, b) => Math.min(a, b), high);
  return [Math.max(least * 0.8, high * 1e-7), high];
}

function lossFigure(run, last, seek) {
  if (!run.curve.train.length && !run.curve.eval.length) return null;
  let log = false;
  const values = { train: make("span", { class: "value" }), eval: make("span", { class: "value" }) };
  const shown = Object.keys(values).filter((name) => run.curve[name].length);
  const chart = timeChart({
    label: "", height: 210, last, seek,
    range: () => lossRange(run, log),
    logarithmic: () => log,
    drawMarks: (plot) => {
      for (const [name, value] of run.levels) {
        if (!isNumber(value) || value > plot.high) continue;
        const y = plot.y(value);
        plot.layer.append(draw("line", { class: "level", x1: plot.left, x2: plot.right, y1: y, y2: y }));
        plot.layer.append(draw("text", { class: "level-name", x: plot.right, y: y > plot.top + 14 ? y - 4 : y + 13, "text-anchor": "end", text: name }));
      }
      plot.layer.append(draw("path", { class: "line train", d: linePath(plot, run.curve.train) }));
      for (const [step, value] of run.curve.eval) { // points, as in the terminal: a line would show a loss that was not measured
        if (isNumber(value)) plot.layer.append(draw("circle", { class: "evaluation", cx: plot.x(step), cy: plot.y(value), r: 2.6 }));
      }
    },
  });
  const scale = make("button", {
    type: "button", class: "quiet", "aria-pressed": "false", text: "log", "aria-label": "Logarithmic scale",
    on: { click: () => {
      log = !log;
      scale.setAttribute("aria-pressed", String(log));
      chart.redraw();
    } },
  });
  const legend = shown.map((name) => make("span", { class: `key ${name}` }, make("span", { text: name }), values[name]));
  const node = make("figure", { class: "loss" },
    make("figcaption", {}, make("strong", { text: "Loss, nats" }), ...legend, scale), chart.node);
  return {
    node,
    show(step) {
      const now = shown.map((name) => [name, pointAt(run.curve[name], step)]);
      for (const [name, point] of now) values[name].textContent = nats(point?.[1]);
      chart.moveTo(step, () => now.filter(([, point]) => point).map(([name, [at, value]]) => [value, CURVE_COLORS[name], at]));
      chart.describe(`Loss over training at step ${step}: ` + now.map(([name]) => `${name} ${name === "eval" ? evaluated(run.curve.eval, step) : values[name].textContent} nats`).join(", "));
    },
  };
}

function headColor(index) {
  return COLORS.lines[index % COLORS.lines.length];
}

// The lifts drawn: each head's on the target it follows, or all heads' on one target that the reader chose.
function liftChoice(run) {
  const watchers = [];
  let target = null;
  const targets = [...new Set(run.heads.flatMap((head) => Object.keys(head.all_lifts ?? {})))];
  const choice = {
    targets,
    watch: (act) => watchers.push(act),
    of: (head) => (target === null ? head.lifts : head.all_lifts?.[target] ?? []),
    words(head) {
      if (target !== null) return `lift on ${target}`;
      return head.followed ? `lift on ${head.followed}` : "lift";
    },
    at(head, step) {
      if (!run.steps.length) return head.lift;
      const place = lastUpTo(run.steps, step);
      return place < 0 ? null : choice.of(head)[place] ?? null;
    },
    points: (head) => run.steps.map((step, i) => [step, choice.of(head)[i] ?? null]),
    range() {
      const least = run.heads.flatMap(choice.of).filter(isNumber).reduce((a, b) => Math.min(a, b), 0);
      return [Math.min(-0.05, Math.floor(least * 10) / 10), 1];
    },
    choose(next) {
      target = next;
      watchers.forEach((act) => act());
    },
  };
  return choice;
}

function targetMenu(choice) {
  if (choice.targets.length < 2) return null;
  const menu = make("select", { class: "small", "aria-label": "Target of the lifts", on: { change: () => choice.choose(menu.value || null) } },
    make("option", { value: "", text: "on its own target" }), ...choice.targets.map((name) => make("option", { value: name, text: `on ${name}` })));
  return menu;
}

// The loss at late minus early positions of a row: below 0 where the model makes use of what it has read.
function contextFigure(run, last, seek) {
  const points = run.steps.map((step, i) => [step, run.in_context[i] ?? null]);
  const found = finite(points);
  if (!found.length) return null;
  const value = make("span", { class: "value" });
  const range = [found.reduce((a, b) => Math.min(a, b), -0.1) * 1.05, found.reduce((a, b) => Math.max(a, b), 0.1) * 1.05];
  const chart = timeChart({
    label: "", height: 104, last, seek, range: () => range,
    drawMarks: (plot) => {
      plot.layer.append(draw("line", { class: "zero", x1: plot.left, x2: plot.right, y1: plot.y(0), y2: plot.y(0) }));
      plot.layer.append(draw("path", { class: "line eval", d: linePath(plot, points) }));
    },
  });
  return {
    node: make("figure", { class: "context" }, make("figcaption", {}, make("strong", { text: "In-context score, nats" }), make("span", { class: "key eval" }, value)), chart.node,
      make("p", { class: "fine", text: "loss at late minus early positions of a row" })),
    show(step) {
      const now = lossAt(points, step);
      value.textContent = nats(now);
      chart.moveTo(step, () => [[now, CURVE_COLORS.eval]]);
      chart.describe(`In-context score over training: ${nats(now)} nats at step ${step}`);
    },
  };
}

// One line a head; `highlight(name)` lets the others fade.
function liftFigure(run, choice, last, seek) {
  if (!run.steps.length || !run.heads.length) return null;
  const lines = new Map();
  const chart = timeChart({
    label: "Lift of every head over training: 0 uniform, 1 all weight on its target", height: 170, last, seek,
    range: choice.range,
    drawMarks: (plot) => {
      plot.layer.append(draw("line", { class: "zero", x1: plot.left, x2: plot.right, y1: plot.y(0), y2: plot.y(0) }));
      run.heads.forEach((head, i) => {
        const dash = Math.floor(i / COLORS.lines.length) % 3;
        const line = draw("path", { class: `line lift dash-${dash}`, stroke: headColor(i), d: linePath(plot, choice.points(head)) });
        lines.set(head.name, line);
        plot.layer.append(line);
      });
    },
  });
  choice.watch(chart.redraw);
  const node = make("figure", { class: "lifts" },
    make("figcaption", {}, make("strong", { text: "Lift of each head" }), targetMenu(choice)), chart.node,
    make("p", { class: "fine", text: "0 uniform, 1 all weight on the target" }));
  return {
    node,
    show: (step) => chart.moveTo(step),
    highlight(name) {
      for (const [other, line] of lines) line.classList.toggle("faded", name !== null && other !== name);
    },
  };
}
