"""A small sweep, and what its seeds show: do two heads learn faster than one?

python examples/sweep.py
"""

import mhsa_cli as mhsa

sweep = mhsa.sweep(
    "copy",
    {"task.vocab_size": 16, "task.seq_len": 8},
    n_heads=[1, 2],
    epochs=1,
    steps_per_epoch=150,
    seeds=8,
    name="sweep-example",
)
print(sweep)

# The statements as records: ids and figures to decide by, and a sentence to read.
for pair in sweep.report.pairs:
    print(f"{pair.measure}: {pair.status}, p = {pair.adjusted:.3f} after Holm's correction")

# Each trial is a run that everything else takes.
finished = [trial for trial in sweep.report.trials if trial.is_finished]
print(repr(mhsa.load(finished[0].run)))
