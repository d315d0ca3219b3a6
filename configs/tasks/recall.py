"""Associative recall with many queries, after Arora et al. 2023, "Zoology" (arXiv 2312.04927), section 3.

As in their definition, each key that occurred before asks for its value. Their benchmark first lists all pairs, then
asks for each key once, after gaps drawn from a power law. Ours asks, by default, also each value for its key: without
that nothing rewards a first layer for attending one token back, and the second has nothing to match.
"""

import torch

IGNORE = -100  # the target where nothing is asked
COUNTED = 4096  # rows on which the baseline is measured


class Recall:
    """Pairs of a key and its value, which a row never changes: a key asks for its value, if it occurred before.

    Keys are the lower half of the ids, values the upper half. With `back` a value asks for its key, just before it.
    """

    summary = "a key and its value, again and again; a key that occurred before asks for its value"

    def __init__(self, vocab_size=16, seq_len=24, pairs=4, back=True):
        if vocab_size % 2 or vocab_size < 2 * pairs:
            raise ValueError(f"vocab_size={vocab_size}: wanted an even number, twice the pairs ({pairs}) or more")
        if seq_len % 2 or seq_len < 4:
            raise ValueError(f"seq_len={seq_len}: wanted an even number, 4 or more: a key and a value by turns")
        self.vocab_size, self.seq_len, self.pairs, self.back = vocab_size, seq_len, pairs, back
        self.keys = vocab_size // 2
        inputs, targets = self.sample(torch.Generator().manual_seed(0), COUNTED)
        asked = targets[:, ::2] != IGNORE
        known = (~asked).cumsum(1)  # a key that asks nothing is new
        loss = known[asked].double().log().sum() / (targets != IGNORE).sum()  # values that ask cost nothing
        self.baselines = {"any value so far": float(loss)}

    def sample(self, generator, rows):
        """Draw the pairs of each row, all keys and all values different, and which of them comes when."""
        draws = [torch.rand(rows, self.keys, generator=generator).argsort(1)[:, : self.pairs] for _ in range(2)]
        which = torch.randint(self.pairs, (rows, self.seq_len // 2), generator=generator)
        keys, values = draws[0].gather(1, which), draws[1].gather(1, which) + self.keys
        inputs = torch.stack([keys, values], 2).flatten(1)
        before = (which.unsqueeze(1) == which.unsqueeze(2)).tril(-1).any(2)
        targets = torch.full_like(inputs, IGNORE)
        targets[:, ::2] = values.where(before, IGNORE)
        if self.back:
            targets[:, 1::2] = keys
        return inputs, targets

    def source(self, inputs):
        """Mark for a key the values that followed it before, for a value the places of its key."""
        found = torch.zeros(*inputs.shape, inputs.size(1), dtype=torch.bool)
        keys = inputs[:, ::2]
        same = (keys.unsqueeze(1) == keys.unsqueeze(2)).tril()  # (rows, pairs, pairs)
        values = inputs.size(1) // 2  # the last key of an odd row has none
        found[:, ::2, 1::2] = same.tril(-1)[:, :, :values]
        if self.back:
            found[:, 1::2, ::2] = same[:, :values]
        return found

    def symbols(self, ids):
        """Write keys as a, b, c ... and values as 0, 1, 2 ...; of more than 26 keys as k0, k1 ..."""
        letters = self.keys <= 26
        return [str(i - self.keys) if i >= self.keys else chr(97 + i) if letters else f"k{i}" for i in ids]
