// Elements. Text is set as text, never as markup: a name may hold anything.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// A line of terms and values: parameters 8,384 · steps 360.
function factList(pairs, className) {
  const list = make("dl", { class: className });
  for (const [term, value] of pairs) list.append(make("div", {}, make("dt", { text: term }), make("dd", { text: value })));
  return list;
}

function disclosure(title, ...children) {
  return make("details", {}, make("summary", { text: title }), ...children);
}

// Calls act with the width of a node, now and whenever it changes.
function onWidth(node, act) {
  let last = -1;
  new ResizeObserver(() => {
    const width = node.clientWidth;
    if (width === last || width === 0) return;
    last = width;
    act(width);
  }).observe(node);
}

// What a screen reader says: the last of several messages in one moment.
function announce(text) {
  const status = document.getElementById("status");
  if (status) status.textContent = text;
}
