"""Markov chains in context, after Edelman et al. 2024, "The evolution of statistical induction heads".

arXiv 2402.11004. Theirs has 3 symbols and rows of 100, which begin in the chain's stationary distribution, as here.
"""

import torch

COUNTED = 4096  # rows on which the baselines are measured


class Markov:
    """Each row is a chain with a transition matrix of its own, its rows drawn from Dirichlet(1, ..., 1).

    The baselines predict from the symbols of the row so far: `unigram` by how often each occurred, `bigram` by what
    followed the present one, which is the best that can be done. Both begin with one count for each symbol.
    """

    summary = "rows of Markov chains, each with its own transition matrix; every place asks for the next symbol"

    def __init__(self, vocab_size=3, seq_len=100):
        self.vocab_size, self.seq_len = vocab_size, seq_len
        inputs, targets = self.sample(torch.Generator().manual_seed(0), COUNTED)
        unigram, bigram = self.predictions(inputs)
        self.baselines = {"unigram": nats(unigram, targets), "bigram": nats(bigram, targets)}
        # No model gets 99% right: learned is what is as often right as the bigram counts, but for one in a hundred.
        self.goal_accuracy = float((bigram.argmax(2) == targets).double().mean()) - 0.01

    def sample(self, generator, rows):
        """Draw a matrix for each row, and its chain."""
        k = self.vocab_size
        chain = torch.empty(rows, k, k).exponential_(generator=generator)
        chain = chain / chain.sum(2, keepdim=True)  # (rows, from, to): uniform on the simplex
        late = chain
        for _ in range(8):  # 256 steps on, the first symbol no longer matters
            late = late @ late
        tokens = [torch.multinomial(late[:, 0], 1, generator=generator).squeeze(1)]
        for _ in range(self.seq_len):
            now = chain[torch.arange(rows), tokens[-1]]
            tokens.append(torch.multinomial(now, 1, generator=generator).squeeze(1))
        row = torch.stack(tokens, 1)
        return row[:, :-1].contiguous(), row[:, 1:].contiguous()

    def predictions(self, inputs):
        """Predict every next symbol by counts: unigram and bigram, both (rows, T, k)."""
        k, rows = self.vocab_size, len(inputs)
        seen, follows = torch.ones(rows, k), torch.ones(rows, k, k)
        every, unigram, bigram = torch.arange(rows), [], []
        for t in range(inputs.size(1)):
            now = inputs[:, t]
            seen[every, now] += 1
            if t:
                follows[every, inputs[:, t - 1], now] += 1
            unigram.append(seen / seen.sum(1, keepdim=True))
            bigram.append(follows[every, now] / follows[every, now].sum(1, keepdim=True))
        return torch.stack(unigram, 1), torch.stack(bigram, 1)

    def symbols(self, ids):
        """Write ids as letters."""
        return [chr(97 + i) if self.vocab_size <= 26 else str(i) for i in ids]


def nats(predicted, targets):
    """Return the mean loss of predictions (rows, T, k)."""
    return -float(predicted.gather(2, targets.unsqueeze(2)).log().mean())
