// The step: a slider, play and pause, speed, keys.

// Values are plain text, no live regions: a screen reader hears the step where the reader stops, not every change.
const FULL_PLAY = 9; // seconds from the first step to the last at speed 1
const STILL_RATE = 3; // places a second where the reader asked for less motion

function player(steps) {
  const end = steps.length - 1;
  let index = end;
  let playing = false;
  let clock = null;
  let views = [];
  const icon = make("span", { "aria-hidden": "true", class: "play-icon" });
  const play = make("button", { type: "button", class: "play", "aria-label": "Play", title: "Play or pause (space)", on: { click: () => (playing ? pause() : start()) } }, icon);
  const slider = make("input", { type: "range", min: 0, max: end, step: 1, "aria-label": "Training step", on: { input: () => {
    pause();
    go(Number(slider.value));
  } } });
  const stepText = make("span", { class: "step" });
  const lossText = make("span", { class: "now-loss" });
  const offText = make("span", { class: "now-off" });
  const speed = make("select", { "aria-label": "Speed", title: "Speed" },
    ...[0.25, 0.5, 1, 2, 4].map((value) => make("option", { value, selected: value === 1, text: `${value}\u00d7` })));
  const node = make("div", { class: "player", role: "group", "aria-label": "Training on a slider" },
    play, slider, speed, make("div", { class: "now" }, stepText, lossText, offText));
  slider.value = String(end);

  function go(next) {
    index = Math.min(end, Math.max(0, next));
    const step = steps[index];
    slider.value = String(index);
    slider.setAttribute("aria-valuetext", `step ${step} of ${steps[end]}`);
    stepText.textContent = `step ${count(step)} of ${count(steps[end])}`;
    const losses = views.map((view) => view.lossAt(step));
    lossText.textContent = losses.length ? `loss ${losses.join(" | ")}` : "";
    views.forEach((view) => view.show(step));
    showOff();
  }

  function showOff() {
    const parts = views.filter((view) => view.off?.off.size).map((view) => `${view.off.off.size} off: ${nats(view.off.loss())}${measuredLater(view.run, steps[index])}`);
    offText.textContent = parts.join(" | ");
  }

  function start() {
    playing = true;
    if (index === end) go(0);
    play.setAttribute("aria-label", "Pause");
    play.classList.add("playing");
    const quiet = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let [before, place] = [performance.now(), index];
    const tick = (now) => {
      const rate = (end / FULL_PLAY) * Number(speed.value);
      place += ((now - before) / 1000) * (quiet ? Math.min(rate, STILL_RATE) : rate);
      before = now;
      if (Math.floor(place) !== index) go(Math.floor(place));
      if (index >= end) return pause();
      clock = requestAnimationFrame(tick);
    };
    clock = requestAnimationFrame(tick);
  }

  function pause() {
    if (!playing) return;
    cancelAnimationFrame(clock);
    playing = false;
    play.setAttribute("aria-label", "Play");
    play.classList.remove("playing");
    announce(`step ${steps[index]}`);
  }

  // Space and the arrows work anywhere, except where they mean something else.
  function key(event) {
    const tag = event.target.tagName;
    if (event.altKey || event.ctrlKey || event.metaKey || tag === "SELECT") return;
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key === " " && tag !== "BUTTON" && tag !== "SUMMARY") playing ? pause() : start();
    else if (event.key in moves && tag !== "INPUT") {
      pause();
      go(index + moves[event.key]);
      announce(`step ${steps[index]}`);
    } else return;
    event.preventDefault();
  }
  if (end > 0) document.addEventListener("keydown", key);

  return {
    node: end > 0 ? node : null,
    // Goes to the recorded step nearest to a place on the curve.
    seek(step) {
      pause();
      const at = Math.max(0, lastUpTo(steps, step));
      go(at < end && steps[at + 1] - step < step - steps[at] ? at + 1 : at);
    },
    show(list) {
      views = list;
      views.forEach((view) => view.off?.watch(showOff));
      if (steps.length) go(index);
      else views.forEach((view) => view.show(0));
    },
    stop() {
      cancelAnimationFrame(clock);
      document.removeEventListener("keydown", key);
    },
  };
}
