// Everything about one run, moving with the step.

function runView(run, { last, seek, heading }) {
  const end = lastStep(run);
  const off = switches(run);
  const loss = lossFigure(run, last, seek);
  const context = contextFigure(run, last, seek);
  const choice = liftChoice(run);
  const lifts = liftFigure(run, choice, last, seek);
  const at = mapsOf(run);
  const grid = headGrid(run, { at, off, choice, last, highlight: (name) => lifts?.highlight(name) });
  const mapsAt = make("span", { class: "maps-at" });
  const [headline, ...more] = run.sentences;
  const about = make("header", { class: "about" }, make("div", { class: "story" },
    make(heading, { text: run.name }),
    make("p", { class: "task", text: [run.task, run.origin ? `from ${run.origin}` : ""].filter(Boolean).join(" \u00b7 ") }),
    headline ? make("p", { class: "headline", text: headline }) : null,
    ...more.map((text) => make("p", { class: "more", text })),
    run.checks ? make("p", { class: "caution", text: run.checks }) : null),
    make("div", { class: "about-facts" }, factList(run.facts, "facts"), run.settings.length ? disclosure("settings that differ from the defaults", factList(run.settings, "facts settings")) : null));
  const side = [loss?.node, lifts?.node, ablationPanel(run, off), context?.node].filter(Boolean);
  const node = make("section", { class: "run", "aria-label": run.name }, about,
    make("div", { class: side.length && run.heads.length ? "body" : "body single" },
      side.length ? make("div", { class: "side" }, ...side) : null,
      run.heads.length ? make("div", { class: "main" },
        make("div", { class: "maps-head" }, make("h2", { text: "Heads" }), mapsAt, legend(run)),
        grid.node, circuitList(run)) : null));
  drawArrows(run, grid);
  return {
    node, run, off,
    lossAt(wanted) {
      const step = Math.min(wanted, end);
      return run.curve.eval.length ? evaluated(run.curve.eval, step) : nats(lossAt(run.curve.train, step));
    },
    show(wanted) {
      const step = Math.min(wanted, end); // a shorter run stays at its end
      loss?.show(step);
      context?.show(step);
      lifts?.show(step);
      grid.show(step);
      const maps = at(step);
      const where = maps.step === null || maps.step === undefined ? "" : `maps of step ${count(maps.step)}`;
      mapsAt.textContent = [where, maps.exact ? "" : "in percent", maps.pool > 1 ? `a cell is the largest weight of ${maps.pool} \u00d7 ${maps.pool}` : ""].filter(Boolean).join(", ");
    },
  };
}
