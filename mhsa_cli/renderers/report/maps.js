// A head's attention map: one pixel a weight, enlarged; its tokens; the cell under pointer or keyboard.

const FUTURE = [0, 0, 0, 0];
const ALARM = [208, 64, 64, 255];

function shade(weight) {
  if (!Number.isFinite(weight)) return ALARM;
  const [red, green, blue] = COLORS.shades[Math.round(Math.min(1, Math.max(0, weight)) * 100)];
  return [red, green, blue, 255];
}

function tokenText(token) {
  return token.trim() === "" ? token.replace(/ /g, "\u2423").replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5") || "\u2205" : token;
}

function axis(className, tokens) {
  return make("div", { class: `axis ${className}`, "aria-hidden": "true" }, ...tokens.map((token) => make("span", {}, make("i", { text: tokenText(token) }))));
}

function attentionMap(run, head, at, describe) {
  const part = partOf(run, head.layer);
  const canvas = make("canvas", { role: "img", tabindex: "0", class: "map" });
  const marker = make("div", { class: "marker", hidden: true });
  const tip = make("div", { class: "tip-box", hidden: true, "aria-hidden": "true" });
  const frame = make("div", { class: "map-frame" }, canvas, marker, tip);
  const [left, below] = [axis("queries", part.queries), axis("keys", part.keys)];
  const node = make("div", { class: "map-grid" }, left, frame, below);
  const pen = canvas.getContext("2d", { willReadFrequently: true }); // a few pixels: no work for a GPU
  let [maps, rows, cols, cell] = [null, 0, 0, null];

  const masked = (query, key) => part.causal && key > query;
  const spot = (index, tokens) => {
    const first = index * maps.pool;
    if (maps.pool === 1) return `${first} \u201c${tokenText(tokens[first] ?? "")}\u201d`;
    return `${first}\u2013${Math.min(tokens.length, first + maps.pool) - 1}`;
  };

  // [query, key, weight] in words.
  function cellWords() {
    const [query, key] = cell;
    const weight = maps.weight(head.layer, head.head, query, key);
    let value = maps.exact ? `weight ${fixed(weight, 3)}` : `weight ${percent(weight)}`;
    if (maps.pool > 1) value = `largest ${value} of ${maps.pool} \u00d7 ${maps.pool}`;
    if (!Number.isFinite(weight)) value = "not finite";
    if (masked(query, key)) value = "masked";
    return [`query ${spot(query, part.queries)}`, `key ${spot(key, part.keys)}`, value];
  }

  function point(next, spoken = false) {
    cell = next;
    marker.hidden = tip.hidden = cell === null;
    if (!cell) return;
    const said = cellWords();
    tip.replaceChildren(...said.map((text) => make("div", { text })));
    Object.assign(marker.style, {
      left: `${(cell[1] / cols) * 100}%`, top: `${(cell[0] / rows) * 100}%`, width: `${100 / cols}%`, height: `${100 / rows}%`,
    });
    // Beside the cell, towards the middle of the window, so that it never leaves it.
    const box = canvas.getBoundingClientRect();
    const [x, y] = [((cell[1] + 0.5) / cols) * box.width, ((cell[0] + 0.5) / rows) * box.height];
    const [toLeft, up] = [box.left + x > document.documentElement.clientWidth / 2, cell[0] > rows / 2];
    Object.assign(tip.style, {
      left: toLeft ? "auto" : `${x + 12}px`, right: toLeft ? `${box.width - x + 12}px` : "auto",
      top: up ? "auto" : `${y + 10}px`, bottom: up ? `${box.height - y + 10}px` : "auto",
    });
    if (spoken) announce(`${head.name}, ${said.join(", ")}`);
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    const col = Math.floor(((event.clientX - box.left) / box.width) * cols);
    point([Math.min(rows - 1, Math.max(0, row)), Math.min(cols - 1, Math.max(0, col))]);
  }

  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  fill(canvas, { on: {
    pointermove: under,
    pointerdown: under,
    pointerleave: () => document.activeElement !== canvas && point(null),
    focus: () => canvas.matches(":focus-visible") && !cell && point([rows - 1, 0], true),
    blur: () => point(null),
    keydown: (event) => {
      if (event.key === "Escape") return canvas.blur();
      if (!(event.key in moves) || event.shiftKey || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      const [down, right] = moves[event.key];
      const [query, key] = cell ?? [0, 0];
      point([Math.min(rows - 1, Math.max(0, query + down)), Math.min(cols - 1, Math.max(0, key + right))], true);
    },
  } }, []);

  // Tokens stand beside the map where a cell has the room; long ones stand upright below it.
  const longest = Math.max(...part.keys.map((token) => [...tokenText(token)].length), 1);
  const upright = longest > 2;
  node.classList.toggle("upright", upright);
  const fit = () => {
    const cellSize = frame.clientWidth / part.keys.length;
    const letters = upright ? cellSize * 0.8 : (cellSize - 4) / (0.6 * longest); // a letter is 0.6 of its height wide
    node.classList.toggle("bare", letters < 7.5 || maps?.pool > 1);
    node.style.setProperty("--token", `${Math.min(11, cellSize * 0.8, letters)}px`);
  };
  onWidth(node, fit);

  return {
    node,
    show(step) {
      const before = maps;
      maps = at(step);
      [rows, cols] = maps.size(head.layer);
      if (canvas.width !== cols || canvas.height !== rows) [canvas.width, canvas.height] = [cols, rows];
      if (before?.pool !== maps.pool) fit();
      const image = pen.createImageData(cols, rows);
      for (let query = 0; query < rows; query++) {
        for (let key = 0; key < cols; key++) {
          const color = masked(query, key) ? FUTURE : shade(maps.weight(head.layer, head.head, query, key));
          image.data.set(color, (query * cols + key) * 4);
        }
      }
      pen.putImageData(image, 0, 0);
      canvas.setAttribute("aria-label", describe(maps));
      if (cell) point([Math.min(rows - 1, cell[0]), Math.min(cols - 1, cell[1])]);
    },
  };
}

function legend(run) {
  const bar = make("span", { class: "ramp" });
  bar.style.background = `linear-gradient(to right, ${COLORS.shades.filter((_, i) => i % 10 === 0).map((rgb) => `rgb(${rgb})`).join(", ")})`;
  const masked = run.parts ? run.parts.some(({ role }) => role === "decoder") : run.causal;
  return make("p", { class: "legend" }, make("span", { text: "attention weight" }), make("span", { class: "ramp-box" }, make("span", { text: "0" }), bar, make("span", { text: "1" })),
    masked ? make("span", { class: "ramp-box" }, make("span", { class: "masked-swatch" }), make("span", { text: "masked" })) : null,
    make("span", { text: "rows are queries, columns are keys" }));
}
