// A card for each head: its map, its lift over training, its sentence, its figures, its switch.

function figures(head) {
  const pairs = [
    ["lift", isNumber(head.lift) ? fixed(head.lift) : null],
    ["weight on its target", isNumber(head.mass) ? `${percent(head.mass)} (uniform: ${percent(head.uniform)})` : null],
    ["entropy", isNumber(head.entropy) ? `${fixed(head.entropy)} (1 uniform)` : null],
    ["effect when uniform", isNumber(head.delta) ? `${withError(head.delta, head.delta_se, true)} nats` : null],
    ["share of what attention is worth", isNumber(head.share) ? percent(head.share) + (isNumber(head.share_se) ? ` \u00b1 ${percent(head.share_se)}` : "") : null],
    ["onset", head.onset ? `steps ${count(head.onset[0])} to ${count(head.onset[1])}` : null],
  ];
  return factList(pairs.filter(([, value]) => value !== null), "figures");
}

function scoreTable(head) {
  const columns = ["target", "weight", "uniform", "lift", "limit"];
  const limit = (values) => values.filter(isNumber).reduce((a, b) => Math.max(a, b), -Infinity);
  const cells = ([...row]) => [...row.slice(0, 4), limit(row.slice(4))].map((value, i) => (i === 0 ? make("th", { scope: "row", text: value }) : make("td", { text: fixed(value) })));
  const rows = head.scores.map((row) => make("tr", {}, ...cells(row)));
  const headings = make("tr", {}, ...columns.map((text) => make("th", { scope: "col", text })));
  return make("div", { class: "score-box" }, make("table", { class: "scores" }, make("thead", {}, headings), make("tbody", {}, ...rows)),
    make("p", { class: "fine", text: "limit: the lift that untrained heads, and random queries and keys in this model, stay below (99th percentile)" }));
}

// Below the row of its card, over the whole width.
function headPanel(head) {
  return make("section", { class: "panel", hidden: true, "aria-label": `Figures of ${head.name}` }, make("h4", { text: head.name }),
    figures(head), head.why ? make("p", { class: "why", text: head.why }) : null, head.scores.length ? scoreTable(head) : null);
}

function switchButton(head, index, off) {
  if (!off) return null;
  const state = make("span", { class: "state", text: "on" });
  return make("button", {
    type: "button", class: "switch", "aria-pressed": "false", "aria-label": `${head.name} uniform`, disabled: !off.can(index),
    title: `Make ${head.name} uniform`, on: { click: () => off.toggle(index) },
  }, state);
}

function liftSpark(run, head, index, choice, last) {
  const [name, value] = [make("span", {}), make("span", { class: "lift-value" })];
  let now = 0;
  const chart = timeChart({
    label: "", height: 38, last, compact: true, range: choice.range,
    drawMarks: (plot) => {
      if (head.onset) {
        const [from, to] = head.onset.map((step) => plot.x(Math.min(last, step)));
        plot.layer.append(draw("rect", { class: "onset", x: from, width: Math.max(2, to - from), y: plot.top, height: plot.bottom - plot.top }));
      }
      plot.layer.append(draw("line", { class: "zero", x1: plot.left, x2: plot.right, y1: plot.y(0), y2: plot.y(0) }));
      plot.layer.append(draw("path", { class: "line lift", stroke: headColor(index), d: linePath(plot, choice.points(head)) }));
    },
  });
  const spark = {
    node: make("div", { class: "spark" }, make("div", { class: "spark-head" }, name, value), run.steps.length ? chart.node : null),
    show(step) {
      now = step;
      const lift = choice.at(head, step);
      name.textContent = choice.words(head);
      value.textContent = fixed(lift);
      chart.moveTo(step, () => [[choice.at(head, now), headColor(index)]]);
      chart.describe(`${head.name}: ${choice.words(head)} ${fixed(lift)} at step ${step}`);
    },
  };
  choice.watch(() => {
    chart.redraw();
    spark.show(now);
  });
  return spark;
}

function headCard(run, head, index, { at, off, choice, last, highlight }) {
  const spark = liftSpark(run, head, index, choice, last);
  const when = (maps) => (maps.step === null || maps.step === undefined ? "" : `, step ${maps.step}`);
  const map = attentionMap(run, head, at, (maps) => `Attention map of ${head.name}${when(maps)}${head.label ? `, ${head.label}` : ""}. ${head.sentence} Arrow keys read its cells.`);
  const button = switchButton(head, index, off);
  const enlarge = make("button", {
    type: "button", class: "quiet icon", "aria-pressed": "false", "aria-label": `${head.name} large`, title: "Enlarge", text: "\u2922",
    on: { click: () => enlarge.setAttribute("aria-pressed", String(card.classList.toggle("large"))) },
  });
  const swatch = make("span", { class: "swatch" });
  swatch.style.background = headColor(index);
  const uniform = make("span", { class: "stamp", text: "uniform", "aria-hidden": "true" });
  map.node.append(uniform);
  const panel = head.why || head.scores.length ? headPanel(head) : null;
  const opener = panel && make("button", {
    type: "button", class: "quiet opener", "aria-expanded": "false", "aria-label": `Figures of ${head.name}`, text: "figures",
    on: { click: () => {
      panel.hidden = !panel.hidden;
      opener.setAttribute("aria-expanded", String(!panel.hidden));
    } },
  });
  const card = make("article", { class: "head", "aria-label": head.name },
    make("header", {}, run.steps.length ? swatch : null, make("h4", { text: head.name }), enlarge, button),
    map.node, spark.node, head.sentence ? make("p", { class: "sentence", text: head.sentence }) : null, opener);
  fill(card, { on: {
    pointerenter: () => highlight(head.name),
    pointerleave: () => highlight(null),
    focusin: () => highlight(head.name),
    focusout: () => highlight(null),
  } }, []);
  const showSwitch = () => {
    const isOff = off.off.has(index);
    card.classList.toggle("off", isOff);
    button.setAttribute("aria-pressed", String(isOff));
    button.firstChild.textContent = isOff ? "off" : "on";
  };
  if (off) off.watch(showSwitch);
  return {
    node: card, panel,
    show(step) {
      map.show(step);
      spark.show(step);
    },
  };
}

const CARD = 142; // least width of a card
const BETWEEN = 18;

// As many columns as there is room for, with rows of about one length.
function arrange(row, cards, width) {
  const most = Math.max(1, Math.floor((width + BETWEEN) / (CARD + BETWEEN)));
  row.style.setProperty("--columns", String(Math.ceil(cards / Math.ceil(cards / most))));
}

// The cards, layer by layer; the arrows of the circuit are drawn between them.
function headGrid(run, shared) {
  const grid = make("div", { class: "layers" });
  const cards = [];
  const [L] = run.shape;
  for (let layer = 0; layer < L; layer++) {
    const mine = run.heads.map((head, index) => [head, index]).filter(([head]) => head.layer === layer);
    const row = make("div", { class: "layer-heads" });
    onWidth(row, (width) => arrange(row, mine.length, width));
    for (const [head, index] of mine) {
      const card = headCard(run, head, index, shared);
      cards.push(card);
      row.append(card.node, ...(card.panel ? [card.panel] : [])); // the grid lets it begin below the row of its card
    }
    const { role } = partOf(run, layer);
    const title = make("h3", { text: `Layer ${layer}${role ? ` (${role})` : ""}` });
    grid.append(make("section", { class: "layer" }, L > 1 || role ? title : null, row));
  }
  return { node: grid, cards, show: (step) => cards.forEach((card) => card.show(step)) };
}
