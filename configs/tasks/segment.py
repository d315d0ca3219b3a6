"""Segment numbers: which segment of the row a token belongs to, segments being divided by separators.

The answers are like the segment ids that BERT is given (Devlin et al. 2019, arXiv 1810.04805), but for more than two
segments, and to be found: a count, as selector_width in RASP (Weiss et al. 2021, arXiv 2106.06981). We know no paper
that trains this task.
"""

import torch

COUNTED = 4096  # rows on which the baseline is measured


class Segment:
    """Symbols with separators at random places; every token asks how many separators came before it or are it."""

    summary = "symbols and separators; every place asks for the number of its segment"

    def __init__(self, vocab_size=17, seq_len=24, segments=6):
        if not 2 <= segments <= min(vocab_size - 1, seq_len):
            raise ValueError(f"segments={segments}: wanted 2 to {min(vocab_size - 1, seq_len)}")
        self.vocab_size, self.seq_len, self.segments = vocab_size, seq_len, segments
        self.separator = vocab_size - 1
        inputs, targets = self.sample(torch.Generator().manual_seed(0), COUNTED)
        case = 2 * torch.arange(seq_len) + (inputs == self.separator)  # (rows, T): the place, and is it a separator
        counts = torch.zeros(2 * seq_len, segments)
        counts.index_put_((case, targets), torch.ones(()), accumulate=True)
        share = counts / counts.sum(1, keepdim=True)
        self.baselines = {"place and token": -float(share[case, targets].log().mean())}

    def sample(self, generator, rows):
        """Draw the symbols, and the places of segments - 1 separators."""
        inputs = torch.randint(self.separator, (rows, self.seq_len), generator=generator)
        places = torch.rand(rows, self.seq_len, generator=generator).argsort(1)[:, : self.segments - 1]
        inputs.scatter_(1, places, self.separator)
        return inputs, (inputs == self.separator).cumsum(1)

    def symbols(self, ids):
        """Write the separator as a bar."""
        return ["|" if i == self.separator else str(i) for i in ids]
