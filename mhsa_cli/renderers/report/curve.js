// The loss over training and every head's lift over training, with a cursor at the step.

const CURVE_COLORS = { train: "var(--train)", eval: "var(--eval)" };

function finite(points) {
  return points.map(([, value]) => value).filter(isNumber);
}

// The highest loss drawn: a diverged step does not flatten the rest.
function lossRange(run, log) {
  const levels = run.levels.map(([, value]) => value).filter(isNumber);
  const values = [...finite(run.curve.train), ...finite(run.curve.eval)];
  const first = [finite(run.curve.eval)[0], finite(run.curve.train)[0], ...levels].filter(isNumber);
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  const high = Math.min(Math.max(most, ...levels), 3 * Math.max(...first, 0)) * 1.04 || 1;
  if (!log) return [0, high];
  const least = values.filter((value) => value > 0).reduce((a, b) => Math.min(a, b), high);
  return [Math.max(least * 0.8, high * 1e-7), high];
}

function lossFigure(run, last, seek) {
  if (!run.curve.train.length && !run.curve.eval.length) return null;
  let log = false;
  const values = { train: make("output", {}), eval: make("output", {}) };
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
      for (const name of shown) plot.layer.append(draw("path", { class: `line ${name}`, d: linePath(plot, run.curve[name]) }));
    },
  });
  const scale = make("button", {
    type: "button", class: "quiet", "aria-pressed": "false", text: "log scale",
    on: { click: () => {
      log = !log;
      scale.setAttribute("aria-pressed", String(log));
      chart.redraw();
    } },
  });
  const legend = shown.map((name) => make("span", { class: `key ${name}` }, make("span", { text: name }), values[name]));
  const node = make("figure", { class: "loss" },
    make("figcaption", {}, make("strong", { text: "Loss" }), make("span", { class: "unit", text: "nats" }), ...legend, scale), chart.node);
  return {
    node,
    show(step) {
      const now = shown.map((name) => [lossAt(run.curve[name], step), CURVE_COLORS[name], name]);
      for (const [value, , name] of now) values[name].textContent = nats(value);
      chart.moveTo(step, () => now);
      chart.describe(`Loss over training at step ${step}: ` + now.map(([value, , name]) => `${name} ${nats(value)} nats`).join(", "));
    },
  };
}

function headColor(index) {
  return COLORS.lines[index % COLORS.lines.length];
}

function liftPoints(run, head) {
  return run.steps.map((step, i) => [step, head.lifts[i] ?? null]);
}

function liftRange(run) {
  const all = run.heads.flatMap((head) => head.lifts).filter(isNumber);
  return [Math.min(-0.05, Math.floor(all.reduce((a, b) => Math.min(a, b), 0) * 10) / 10), 1];
}

// One line a head; `highlight(name)` lets the others fade.
function liftFigure(run, last, seek) {
  if (!run.steps.length) return null;
  const lines = new Map();
  const chart = timeChart({
    label: "Lifts of all heads over training", height: 170, last, seek,
    range: () => liftRange(run),
    drawMarks: (plot) => {
      plot.layer.append(draw("line", { class: "zero", x1: plot.left, x2: plot.right, y1: plot.y(0), y2: plot.y(0) }));
      run.heads.forEach((head, i) => {
        const dash = Math.floor(i / COLORS.lines.length) % 3;
        const line = draw("path", { class: `line lift dash-${dash}`, stroke: headColor(i), d: linePath(plot, liftPoints(run, head)) });
        lines.set(head.name, line);
        plot.layer.append(line);
      });
    },
  });
  const node = make("figure", { class: "lifts" },
    make("figcaption", {}, make("strong", { text: "Lift of each head" }), make("span", { class: "unit", text: "0 uniform, 1 all weight on its target" })), chart.node);
  return {
    node,
    show: (step) => chart.moveTo(step),
    highlight(name) {
      for (const [other, line] of lines) line.classList.toggle("faded", name !== null && other !== name);
    },
  };
}
