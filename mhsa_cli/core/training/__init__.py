"""Training: stacks of models, their gradients, batches, checkpoints and snapshots."""
