// What a run was at a step: its losses, its lifts, its maps.

// The last place in a rising list that is not above a value; -1 if all are above it.
function lastUpTo(list, value, of = (item) => item) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(list[middle]) <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// The steps at which something of the runs was recorded: the places of the slider.
function stepsOf(runs) {
  const found = new Set();
  for (const run of runs) {
    for (const step of run.steps) found.add(step);
    for (const frame of run.frames) found.add(frame.step);
    if (run.step !== null) found.add(run.step); // a run that was stopped was measured after its last snapshot
    if (!run.steps.length && !run.frames.length) for (const [step] of run.curve.eval) found.add(step);
  }
  return [...found].sort((a, b) => a - b);
}

function lastStep(run) {
  const ends = [run.step ?? 0, run.steps, run.frames.map((frame) => frame.step), ...Object.values(run.curve).map((line) => line.map(([step]) => step))];
  return ends.flat().reduce((most, step) => Math.max(most, step), 0);
}

// The last point [step, value] of a curve up to a step; null before its first one.
function pointAt(points, step) {
  const at = lastUpTo(points, step, (point) => point[0]);
  return at < 0 ? null : points[at];
}

function lossAt(points, step) {
  return pointAt(points, step)?.[1] ?? null;
}

// The last evaluation up to a step; where it is of an earlier one, that step stands beside it.
function evaluated(points, step) {
  const found = pointAt(points, step);
  const when = found !== null && found[0] < step ? ` (step ${count(found[0])})` : "";
  return nats(found?.[1]) + when;
}

function decode(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

const NOT_FINITE = 255;

// Gives the maps at a step: weight(layer, head, query, key), with their sizes. The maps at the end are exact.
function mapsOf(run) {
  const [, H] = run.shape;
  const exact = {
    step: run.step,
    pool: run.pool ?? 1,
    exact: true,
    size: (layer) => [run.weights[layer][0].length, Math.max(...run.weights[layer][0].map((row) => row.length))],
    weight: (layer, head, query, key) => {
      const value = run.weights[layer][head][query][key];
      return value === undefined ? 0 : value === null ? NaN : value; // rows may end at their own key
    },
  };
  const starts = run.maps_shape.map(() => 0);
  run.maps_shape.forEach(([rows, cols], layer) => {
    if (layer + 1 < starts.length) starts[layer + 1] = starts[layer] + H * rows * cols;
  });
  const decoded = new Map();
  const frame = (index) => {
    if (!decoded.has(index)) decoded.set(index, decode(run.frames[index].maps));
    const bytes = decoded.get(index);
    return {
      step: run.frames[index].step,
      pool: run.frames[index].pool,
      exact: false,
      size: (layer) => run.maps_shape[layer],
      weight: (layer, head, query, key) => {
        const [rows, cols] = run.maps_shape[layer];
        const byte = bytes[starts[layer] + (head * rows + query) * cols + key];
        return byte === NOT_FINITE ? NaN : byte / 100;
      },
    };
  };
  const measured = run.step ?? lastStep(run);
  return (step) => {
    const at = lastUpTo(run.frames, step, (one) => one.step);
    return at < 0 || (run.frames[at].step <= measured && measured <= step) ? exact : frame(at);
  };
}

// The part of the row that a layer works on; without parts every layer works on all of it.
function partOf(run, layer) {
  if (run.parts) {
    const { role, queries, keys } = run.parts[layer];
    return { role, queries: run.tokens.slice(...queries), keys: run.tokens.slice(...keys), causal: role === "decoder" };
  }
  return { role: null, queries: run.tokens, keys: run.tokens, causal: run.causal };
}
