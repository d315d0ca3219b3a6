// Reads the data and builds the page.

function block(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

const COLORS = block("colors");

const THEMES = ["auto", "light", "dark"];

function themeButton() {
  let at = 0;
  const button = make("button", { type: "button", class: "quiet theme", on: { click: () => {
    at = (at + 1) % THEMES.length;
    show();
  } } });
  const show = () => {
    if (at) document.documentElement.dataset.theme = THEMES[at];
    else delete document.documentElement.dataset.theme;
    button.textContent = `theme: ${THEMES[at]}`;
  };
  show();
  return button;
}

function keysHelp() {
  const keys = [["space", "play or pause"], ["\u2190 \u2192", "one recorded step back or on"], ["Tab", "to the next map or switch"], ["arrow keys on a map", "the weight of each cell"], ["Esc", "leave a map"]];
  return disclosure("keys", factList(keys, "facts"));
}

// One run, or two side by side, with one slider.
function runsView(runs, heading) {
  const steps = stepsOf(runs);
  const last = Math.max(1, ...runs.map(lastStep));
  const control = player(steps);
  const views = runs.map((run) => runView(run, { last, seek: control.seek, heading }));
  control.show(views);
  const node = make("div", { class: "show" }, control.node, make("div", { class: runs.length > 1 ? "runs two" : "runs" }, ...views.map((view) => view.node)));
  return { node, stop: control.stop };
}

function build(document_) {
  const page = make("main", { class: document_.kind });
  if (document_.kind === "sweep") page.append(sweepView(document_));
  else page.append(runsView(document_.runs, "h1").node);
  document.body.prepend(
    make("div", { class: "top" }, make("span", { class: "brand", text: "mhsa report" }), keysHelp(), themeButton()),
    page, make("div", { id: "status", class: "unseen", role: "status", "aria-live": "polite" }));
}

build(block("data"));
