// Circuit arrows from head to head (or to the logits), with what patching them costs.

const SHOWN = "shown"; // the status of a claim
const PARTS = { q: "queries", k: "keys", v: "values" };

function arrowWords(arrow) {
  const to = arrow.to ? arrow.to.join(" + ") : "logits";
  const part = arrow.part ? `, ${PARTS[arrow.part] ?? arrow.part}` : "";
  const limit = isNumber(arrow.null) ? ` (random writers: up to ${fixed(arrow.null)})` : "";
  return [`${arrow.from.join(" + ")} \u2192 ${to}${part}`, `${withError(arrow.delta, arrow.se, true)} nats${limit}: ${arrow.status}`];
}

function circuitList(run) {
  if (!run.arrows.length) return null;
  const items = run.arrows.map((arrow) => {
    const [path, effect] = arrowWords(arrow);
    return make("li", { class: arrow.status === SHOWN ? "shown" : "not-shown" }, make("span", { class: "dash", "aria-hidden": "true" }), make("b", { text: path }), " ", make("span", { text: effect }));
  });
  return make("div", { class: "circuit" }, make("h3", { text: "Circuit" }),
    make("p", { class: "fine", text: "The loss added when the readers get the writer\u2019s output of a corrupted row. Random writers: changes of the same size in other directions." }),
    make("ul", {}, ...items));
}

function drawArrows(run, grid) {
  const within = run.arrows.filter((arrow) => arrow.to);
  if (!within.length) return;
  const layer = draw("svg", { class: "arrows", "aria-hidden": "true" });
  grid.node.append(layer);
  grid.node.classList.add("with-arrows");
  const card = new Map(run.heads.map((head, index) => [head.name, grid.cards[index].node]));
  const place = () => {
    const box = grid.node.getBoundingClientRect();
    layer.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const marks = [];
    within.forEach((arrow) => arrow.from.forEach((from) => arrow.to.forEach((to, i) => {
      const [a, b] = [card.get(from), card.get(to)];
      if (a && b) marks.push(...oneArrow(arrow, a, b, box, i === 0));
    })));
    layer.replaceChildren(...marks);
  };
  new ResizeObserver(place).observe(grid.node);
}

// From the foot of a card, straight down to the foot of its layer, then over to the head of the other card.
function oneArrow(arrow, from, to, box, labelled) {
  const [a, b, floor] = [from, to, from.parentElement].map((node) => node.getBoundingClientRect());
  const [x1, y1] = [a.left + a.width / 2 - box.left, a.bottom - box.top + 2];
  const [x2, y2] = [b.left + b.width / 2 - box.left, b.top - box.top];
  const bottom = floor.bottom - box.top;
  const bend = Math.max(16, (y2 - bottom) / 2);
  const kind = arrow.status === SHOWN ? "shown" : "not-shown";
  const path = `M${x1} ${y1}V${bottom}C${x1} ${bottom + bend} ${x2} ${y2 - bend} ${x2} ${y2 - 8}`;
  const tip = `M${x2 - 4.5} ${y2 - 9}L${x2} ${y2 - 1}L${x2 + 4.5} ${y2 - 9}Z`;
  const marks = [draw("path", { class: `arrow ${kind}`, d: path }), draw("path", { class: `tip ${kind}`, d: tip })];
  if (labelled) {
    const left = x1 > box.width - 150;
    const text = `${arrow.delta >= 0 ? "+" : ""}${fixed(arrow.delta)} nats${arrow.part ? ` (${PARTS[arrow.part] ?? arrow.part})` : ""}`;
    marks.push(draw("text", { class: "arrow-name", x: x1 + (left ? -9 : 9), y: bottom + 13, "text-anchor": left ? "end" : "start", text }));
  }
  return marks;
}
