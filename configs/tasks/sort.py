"""Sorting, as in the demonstration of minGPT (Karpathy 2020, github.com/karpathy/minGPT, demo.ipynb).

Theirs sorts 6 digits out of 0, 1, 2 and has no separator.
"""

import torch

IGNORE = -100  # the target where nothing is asked
COUNTED = 4096  # rows on which the baseline is measured


class Sort:
    """A prefix, a separator, and the prefix in ascending order, asked for symbol by symbol."""

    summary = "symbols, a separator, then the symbols in ascending order"

    def __init__(self, vocab_size=33, seq_len=16):
        if seq_len % 2:
            raise ValueError(f"seq_len={seq_len}: wanted an even number, the prefix is half of it")
        self.vocab_size, self.seq_len, self.n = vocab_size, seq_len, seq_len // 2
        self.separator = vocab_size - 1
        inputs, targets = self.sample(torch.Generator().manual_seed(0), COUNTED)
        prefix, answers = inputs[:, : self.n], targets[:, self.n :]
        share = (answers.unsqueeze(2) == prefix.unsqueeze(1)).double().mean(2)
        self.baselines = {"any symbol of the row": -float(share.log().mean())}

    def sample(self, generator, rows):
        """Draw the prefix, symbols with replacement."""
        prefix = torch.randint(self.separator, (rows, self.n), generator=generator)
        answer = prefix.sort(1).values
        inputs = torch.cat([prefix, torch.full((rows, 1), self.separator), answer[:, :-1]], 1)
        targets = torch.full_like(inputs, IGNORE)
        targets[:, self.n :] = answer
        return inputs, targets

    def source(self, inputs):
        """Mark the symbols of the prefix that are the next in order, and where the answer stands already."""
        answer = torch.full_like(inputs, IGNORE)
        asked = answer[:, self.n : 2 * self.n]
        asked[:] = inputs[:, : self.n].sort(1).values[:, : asked.size(1)]
        return (inputs.unsqueeze(1) == answer.unsqueeze(2)).tril()

    def symbols(self, ids):
        """Write the separator as a bar."""
        return ["|" if i == self.separator else str(i) for i in ids]
