"""A task of your own. Its settings are the parameters below: mhsa train task.name=FILE.py:MyTask task.seq_len=20"""

import torch

IGNORE = -100  # the target where nothing is asked


class MyTask:
    """The last place asks for the largest symbol of the row."""

    def __init__(self, vocab_size=16, seq_len=8):
        self.vocab_size, self.seq_len = vocab_size, seq_len

    def sample(self, generator, rows):
        """Draw rows: inputs and targets, both (rows, seq_len) int64, from the generator alone."""
        inputs = torch.randint(self.vocab_size, (rows, self.seq_len), generator=generator)
        targets = torch.full_like(inputs, IGNORE)
        targets[:, -1] = inputs.amax(1)
        return inputs, targets

    # What follows may be deleted.

    def source(self, inputs):
        """Return all keys that hold each query's answer, (rows, queries, keys): heads are scored on them."""
        keys = torch.zeros(*inputs.shape, inputs.size(1), dtype=torch.bool)
        keys[:, -1] = inputs == inputs.amax(1, keepdim=True)
        return keys

    def corrupt(self, inputs):
        """Return rows with other answers, to patch from."""
        return (inputs + self.vocab_size // 2) % self.vocab_size

    def symbols(self, ids):
        """Write ids for display."""
        return [str(i) for i in ids]
