"""Addition modulo p, after Nanda et al. 2023, "Progress measures for grokking via mechanistic interpretability".

arXiv 2301.05217; grokking is of Power et al. 2022, arXiv 2201.02177. Theirs has p = 113 and trains on 30% of the pairs.
"""

import math

import torch

IGNORE = -100  # the target where nothing is asked


class Addition:
    """Rows `a b =` ask for a + b modulo p = vocab_size - 1. Some pairs are held out: they are never trained."""

    summary = "a b = asks for a + b modulo p; pairs are split once into those trained and those held out"

    def __init__(self, vocab_size=32, seq_len=3, trained=0.7):
        if seq_len != 3:
            raise ValueError(f"seq_len={seq_len}: a row has 3 tokens, a b =")
        self.vocab_size, self.seq_len, self.p = vocab_size, seq_len, vocab_size - 1
        order = torch.randperm(self.p**2, generator=torch.Generator().manual_seed(0))  # the split is part of the task
        n = round(trained * self.p**2)
        self.pairs, self.others = order[:n], order[n:]
        if not 0 < n < self.p**2:
            raise ValueError(f"trained={trained}: wanted a share between 0 and 1 that leaves pairs on both sides")
        swapped = self.others % self.p * self.p + self.others // self.p
        unknown = 1 - torch.isin(swapped, self.pairs).double().mean()
        self.baselines = {"memory and a+b = b+a": float(unknown) * math.log(self.p)}

    def _rows(self, pairs):
        a, b = pairs // self.p, pairs % self.p
        inputs = torch.stack([a, b, torch.full_like(a, self.p)], 1)
        targets = torch.full_like(inputs, IGNORE)
        targets[:, 2] = (a + b) % self.p
        return inputs, targets

    def sample(self, generator, rows):
        """Draw pairs that are trained."""
        return self._rows(self.pairs[torch.randint(len(self.pairs), (rows,), generator=generator)])

    def held_out(self, generator, rows):
        """Draw pairs that are held out."""
        return self._rows(self.others[torch.randint(len(self.others), (rows,), generator=generator)])

    def symbols(self, ids):
        """Write the last id as the equals sign."""
        return ["=" if i == self.p else str(i) for i in ids]
