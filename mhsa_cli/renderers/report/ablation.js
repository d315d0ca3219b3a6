// Heads switched off: what the loss was measured to be with uniform attention in them.

// Which heads are off. Where all 2^H coalitions were measured any set can be; else one head at a time.
function switches(run) {
  const { ablation } = run;
  if (!ablation) return null;
  const off = new Set();
  const watchers = [];
  const any = Boolean(ablation.coalitions);
  const single = (index) => ablation.singles?.[index] ?? null;
  const changed = () => watchers.forEach((act) => act());
  return {
    any, off,
    can: (index) => any || single(index) !== null,
    watch: (act) => watchers.push(act),
    toggle(index) {
      if (off.has(index)) off.delete(index);
      else {
        if (!any) off.clear();
        off.add(index);
      }
      changed();
    },
    reset() {
      off.clear();
      changed();
    },
    // Bit h of a coalition's place is set where head h keeps its pattern.
    loss() {
      if (!off.size) return ablation.clean;
      if (any) return ablation.coalitions[run.heads.reduce((bits, _, index) => bits + (off.has(index) ? 0 : 2 ** index), 0)];
      return ablation.clean + single([...off][0])[0];
    },
    error: () => (off.size === 1 ? single([...off][0])?.[1] ?? null : null),
    most() {
      const losses = any ? ablation.coalitions : run.heads.map((_, index) => (single(index)?.[0] ?? 0) + ablation.clean);
      return losses.filter(isNumber).reduce((a, b) => Math.max(a, b), ablation.clean);
    },
  };
}

function measuredOn(run) {
  const weights = run.step === null || run.step === undefined ? "the model\u2019s weights" : `the weights of step ${count(run.step)}`;
  return `Measured on ${run.ablation.rows}, with ${weights}.`;
}

// The step of the weights that were measured, where another one is shown.
function measuredLater(run, step) {
  return isNumber(run.step) && run.step !== Math.min(step, lastStep(run)) ? ` (step ${count(run.step)})` : "";
}

function ablationWords(run, off) {
  const chosen = [...off.off].sort((a, b) => a - b).map((index) => run.heads[index].name);
  const loss = off.loss();
  if (!chosen.length) return `All heads keep their patterns: loss ${nats(loss)} nats.`;
  const change = withError(loss - run.ablation.clean, off.error(), true);
  return `Uniform attention in ${names(chosen)}: loss ${nats(loss)} nats, ${change} against ${nats(run.ablation.clean)} with all heads.`;
}

function ablationPanel(run, off) {
  if (!off) return null;
  const value = make("span", { class: "big" });
  const words = make("p", { class: "words" });
  const bar = make("div", { class: "bar-fill" });
  const reset = make("button", { type: "button", class: "quiet", text: "all heads on", on: { click: () => off.reset() } });
  const most = off.most();
  const track = make("div", { class: "bar", "aria-hidden": "true" }, bar);
  const show = () => {
    const loss = off.loss();
    value.textContent = nats(loss);
    bar.style.width = `${isNumber(loss) && most > 0 ? Math.min(100, Math.max(0.5, (loss / most) * 100)) : 0}%`;
    words.textContent = ablationWords(run, off);
    reset.disabled = off.off.size === 0;
    track.classList.toggle("idle", reset.disabled);
  };
  off.watch(() => {
    show();
    announce(words.textContent);
  });
  show();
  const how = off.any ? "Switch heads off at their maps, in any combination." : "Switch a head off at its map, one at a time.";
  return make("figure", { class: "ablation" },
    make("figcaption", {}, make("strong", { text: "Loss without heads" }), make("span", { class: "unit", text: "nats" }), reset),
    make("div", { class: "ablation-row" }, value, make("div", { class: "bar-box" }, track, make("span", { class: "bar-end", text: nats(most) }))),
    words, make("p", { class: "fine", text: `${how} A head that is off attends uniformly. ${measuredOn(run)}` }));
}
