// A chart over training steps: axes, lines, a cursor; drawn again when its width changes.

// `draw(plot)` adds the marks: plot.x(step), plot.y(value), plot.layer (which clips). `range()` gives [low, high] of y.
// `seek(step)` is called where the reader clicks. The label is for screen readers.
function timeChart({ label, height, last, range, logarithmic = () => false, drawMarks, seek = null, compact = false }) {
  const margin = compact ? { left: 2, right: 2, top: 3, bottom: 3 } : { left: 38, right: 10, top: 8, bottom: 22 };
  const svg = draw("svg", { class: "chart", role: "img", "aria-label": label, height });
  const cursor = draw("line", { class: "cursor", y1: margin.top, y2: height - margin.bottom });
  const dots = draw("g", { class: "dots" });
  const box = make("div", { class: seek ? "chart-box seekable" : "chart-box" }, svg);
  box.style.height = `${height}px`;
  const chart = { node: box, redraw, moveTo, describe: (text) => svg.setAttribute("aria-label", text) };
  let plot = null;
  let step = null;
  let marked = () => [];

  function redraw() {
    const width = box.clientWidth;
    if (!width) return;
    const [low, high] = range();
    const log = logarithmic();
    const place = log ? (value) => Math.log(value) : (value) => value;
    const right = width - margin.right;
    const bottom = height - margin.bottom;
    const unit = (right - margin.left) / Math.max(1, last);
    const scale = (bottom - margin.top) / (place(high) - place(low) || 1);
    plot = {
      width, left: margin.left, right, top: margin.top, bottom, low, high,
      layer: clipped(margin.left - 3, margin.top - 3, right - margin.left + 6, bottom - margin.top + 6),
      x: (value) => margin.left + value * unit,
      y: (value) => bottom - (place(log ? Math.max(low, value) : value) - place(low)) * scale,
      step: (x) => (x - margin.left) / unit,
    };
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width);
    svg.replaceChildren(...(compact ? [] : [axes(plot, last, log)]), plot.layer, cursor, dots);
    drawMarks(plot);
    moveTo(step, marked);
  }

  // Moves the cursor; `values()` gives [value, color] of the dots on it, or [value, color, step] of one before it.
  function moveTo(where, values = () => []) {
    [step, marked] = [where, values];
    cursor.toggleAttribute("hidden", step === null);
    if (!plot || step === null) return;
    const x = plot.x(Math.min(step, last));
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    const circles = values().filter(([value]) => isNumber(value) && value <= plot.high);
    dots.replaceChildren(...circles.map(([value, color, at = step]) => draw("circle", { cx: plot.x(Math.min(at, last)), cy: plot.y(value), r: compact ? 2.5 : 3.5, fill: color })));
  }

  if (seek) {
    const at = (event) => plot && seek(plot.step(event.clientX - svg.getBoundingClientRect().left));
    svg.addEventListener("pointerdown", (event) => {
      svg.setPointerCapture(event.pointerId);
      at(event);
    });
    svg.addEventListener("pointermove", (event) => event.buttons && at(event));
  }
  onWidth(box, redraw);
  return chart;
}

// An inner picture in the same coordinates: what lies beyond its edges is not drawn.
function clipped(x, y, width, height) {
  return draw("svg", { x, y, width, height, viewBox: `${x} ${y} ${width} ${height}` });
}

function axisText(value, log) {
  if (value !== 0 && (Math.abs(value) >= 1e5 || (log && value < 0.01))) return signed(value.toExponential(0).replace("+", ""));
  return signed(String(value));
}

function axes(plot, last, log) {
  const group = draw("g", { class: "axes" });
  const rows = log ? decades(plot.low, plot.high) : ticks(plot.low, plot.high, 4);
  for (const value of rows) {
    const y = plot.y(value);
    group.append(draw("line", { x1: plot.left, x2: plot.right, y1: y, y2: y }));
    group.append(draw("text", { x: plot.left - 6, y: y + 4, "text-anchor": "end", text: axisText(value, log) }));
  }
  for (const value of ticks(0, last, plot.width / 90)) {
    const x = plot.x(value);
    const anchor = x > plot.right - 12 ? "end" : "middle";
    group.append(draw("text", { x: anchor === "end" ? plot.right : x, y: plot.bottom + 16, "text-anchor": anchor, text: count(value) }));
  }
  return group;
}

// A line through points [step, value]; null breaks it.
function linePath(plot, points) {
  let path = "";
  let broken = true;
  for (const [step, value] of points) {
    if (!isNumber(value)) {
      broken = true;
      continue;
    }
    path += `${broken ? "M" : "L"}${plot.x(step).toFixed(1)} ${plot.y(value).toFixed(1)}`;
    broken = false;
  }
  return path;
}

// The area between two lines over the same steps.
function bandPath(plot, steps, low, high) {
  const found = steps.map((step, i) => [step, low[i], high[i]]).filter(([, a, b]) => isNumber(a) && isNumber(b));
  if (!found.length) return "";
  const upper = found.map(([step, , b]) => `${plot.x(step).toFixed(1)} ${plot.y(b).toFixed(1)}`);
  const lower = found.map(([step, a]) => `${plot.x(step).toFixed(1)} ${plot.y(a).toFixed(1)}`).reverse();
  return `M${[...upper, ...lower].join("L")}Z`;
}
