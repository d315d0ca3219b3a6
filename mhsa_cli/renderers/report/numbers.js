// Numbers as text, and the ticks of an axis.

const MINUS = "\u2212";

function signed(text) {
  return text.replace("-", MINUS);
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function nats(value) {
  if (!isNumber(value)) return "\u2013";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.0005 || size >= 1e5)) return signed(value.toExponential(1));
  return signed(value.toFixed(size < 10 ? 4 : 2));
}

function gain(value) {
  return (value >= 0 ? "+" : "") + nats(value);
}

// A figure and its standard error, to the digits that the error leaves.
function withError(value, error, sign = false) {
  if (!isNumber(error) || !isNumber(value)) return sign ? gain(value) : nats(value);
  if (Math.abs(value) >= 1e5) return `${sign ? gain(value) : nats(value)} \u00b1 ${nats(error)}`;
  const digits = error > 0 ? Math.min(4, Math.max(2, 1 - Math.floor(Math.log10(error)))) : 4;
  if (error > 0 && error < 0.0001) return `${sign ? gain(value) : nats(value)} \u00b1 ${nats(error)}`;
  return `${sign && value >= 0 ? "+" : ""}${fixed(value, digits)} \u00b1 ${fixed(error, digits)}`;
}

function fixed(value, digits = 2) {
  return isNumber(value) ? signed(value.toFixed(digits)) : "\u2013";
}

function percent(value) {
  return isNumber(value) ? Math.round(value * 100) + "%" : "\u2013";
}

function count(value) {
  return value.toLocaleString("en-US");
}

function names(list) {
  return list.length < 2 ? list.join("") : list.slice(0, -1).join(", ") + " and " + list[list.length - 1];
}

// Round numbers within [low, high], about as many as wanted.
function ticks(low, high, wanted) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / Math.max(1, wanted);
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((one) => one >= raw * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + span * 1e-9; n++) found.push(Number((n * step).toPrecision(10)));
  return found;
}

// The whole powers of ten within [low, high].
function decades(low, high) {
  const found = [];
  for (let power = Math.ceil(Math.log10(low)); 10 ** power <= high; power++) found.push(10 ** power);
  return found;
}
