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

const GAP = 9; // half of the room between two cards of a row

// From the foot of a card to the head of another one. Where cards stand between, the way leads down beside them.
function oneArrow(arrow, from, to, box, labelled) {
  const [a, b, floor, roof] = [from, to, from.parentElement, to.parentElement].map((node) => node.getBoundingClientRect());
  const [x1, y1] = [a.left + a.width / 2 - box.left, a.bottom - box.top + 2];
  const [x2, y2] = [b.left + b.width / 2 - box.left, b.top - box.top];
  const [bottom, top] = [floor.bottom - box.top, roof.top - box.top];
  let [path, x] = [`M${x1} ${y1}`, x1];
  if (bottom - y1 > a.height / 2) {
    x = a.right - box.left + GAP;
    path += `C${x1} ${y1 + GAP} ${x} ${y1} ${x} ${y1 + 2 * GAP}`;
  }
  path += `V${bottom}`;
  if (y2 - top > b.height / 2) {
    const beside = b.left - box.left - GAP;
    path += `${bendTo(x, bottom, beside, top)}V${y2 - 3 * GAP}C${beside} ${y2 - GAP} ${x2} ${y2 - 3 * GAP} ${x2} ${y2 - GAP + 1}`;
  } else path += bendTo(x, bottom, x2, y2 - GAP + 1);
  const kind = arrow.status === SHOWN ? "shown" : "not-shown";
  const tip = `M${x2 - 4.5} ${y2 - 9}L${x2} ${y2 - 1}L${x2 + 4.5} ${y2 - 9}Z`;
  const marks = [draw("path", { class: `arrow ${kind}`, d: path }), draw("path", { class: `tip ${kind}`, d: tip })];
  if (labelled) {
    const left = x > box.width - 150;
    const text = `${arrow.delta >= 0 ? "+" : ""}${fixed(arrow.delta)} nats${arrow.part ? ` (${PARTS[arrow.part] ?? arrow.part})` : ""}`;
    marks.push(draw("text", { class: "arrow-name", x: x + (left ? -GAP : GAP), y: bottom + 13, "text-anchor": left ? "end" : "start", text }));
  }
  return marks;
}

function bendTo(x1, y1, x2, y2) {
  const bend = Math.max(16, (y2 - y1) / 2);
  return `C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
}
