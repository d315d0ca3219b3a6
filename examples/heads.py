"""Train a model on a task, and see what each of its heads does.

python examples/heads.py
"""

import mhsa_cli as mhsa

run = mhsa.train("copy", {"train.seed": 7}, vocab_size=32, n_heads=4, epochs=3, name="heads-example")
print(run)  # what solves the task, the maps of all heads, and a line for each

# Every figure is in a table: a DataFrame with pandas, else a list of dicts.
heads = run.attention().report.heads
strongest = max(heads, key=lambda head: head.uniform_delta_nats)
print(f"\n{strongest.name}: {strongest.label.text if strongest.label else 'not labelled'}")

# An ablation, and the maps on tokens of your own.
print(run.ablate(strongest.name))
print(run.attention("5 9 2 |"))

# The model is a torch module: what does it answer after the separator?
maps = run.attention("5 9 2 7 1 4 |")
print(f"weight of the separator on the first symbol: {maps.weights[0][strongest.head][6][0]:.2f}")
