// A sweep: curves with bands, onsets, labels, circuits, claims, and the trials chosen to be shown.
function sweepView() { return make("section", {}); }
