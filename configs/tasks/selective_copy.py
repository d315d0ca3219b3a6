"""Selective copying, after Gu and Dao 2023, "Mamba" (arXiv 2312.00752), section 4.1.1.

Theirs has rows of 4096 tokens with 16 symbols to copy. With the symbols in fixed places it is the copying task of
Arjovsky et al. 2016 (arXiv 1511.06464).
"""

import torch

IGNORE = -100  # the target where nothing is asked
COUNTED = 4096  # rows on which the baseline is measured


class SelectiveCopy:
    """Symbols at random places among noise, then marks: the k-th mark asks for the k-th symbol."""

    summary = "symbols at random places among noise, then marks; the k-th mark asks for the k-th symbol"

    def __init__(self, vocab_size=18, seq_len=16, copied=4):
        if not 0 < copied <= seq_len // 2:
            raise ValueError(f"copied={copied}: wanted 1 to {seq_len // 2}, half of seq_len")
        self.vocab_size, self.seq_len, self.copied = vocab_size, seq_len, copied
        self.noise, self.mark = vocab_size - 2, vocab_size - 1
        _, targets = self.sample(torch.Generator().manual_seed(0), COUNTED)
        answers = targets[:, -copied:]
        share = (answers.unsqueeze(2) == answers.unsqueeze(1)).double().mean(2)
        self.baselines = {"any symbol of the row": -float(share.log().mean())}

    def sample(self, generator, rows):
        """Draw the symbols and their places."""
        n, length = self.copied, self.seq_len - self.copied
        symbols = torch.randint(self.noise, (rows, n), generator=generator)
        places = torch.rand(rows, length, generator=generator).argsort(1)[:, :n].sort(1).values
        inputs = torch.full((rows, self.seq_len), self.noise)
        inputs.scatter_(1, places, symbols)
        inputs[:, length:] = self.mark
        targets = torch.full_like(inputs, IGNORE)
        targets[:, length:] = symbols
        return inputs, targets

    def source(self, inputs):
        """Mark for the k-th mark every place that holds the k-th symbol."""
        asked, symbol = inputs == self.mark, inputs < self.noise
        kth, rank = asked.cumsum(1), symbol.cumsum(1)  # counted from 1
        is_it = (rank.unsqueeze(1) == kth.unsqueeze(2)) & symbol.unsqueeze(1) & asked.unsqueeze(2)  # (B, T, T)
        is_it = is_it.tril()
        answer = (is_it * inputs.unsqueeze(1)).sum(2)
        return ((inputs.unsqueeze(1) == answer.unsqueeze(2)) & is_it.any(2, keepdim=True)).tril()

    def symbols(self, ids):
        """Write noise as a dot and marks as question marks."""
        return ["." if i == self.noise else "?" if i == self.mark else str(i) for i in ids]
