"""A segment of the row that stands again at a later place: copied by induction heads (Olsson et al. 2022)."""

import torch

IGNORE = -100  # the target where nothing is asked
COUNTED = 256  # rows on which the baselines are measured


class SegmentCopy:
    """Random symbols; `length` of them stand once more at a random later place, where each asks for the next."""

    summary = "random symbols, a segment of them copied to a random later place"

    def __init__(self, vocab_size=32, seq_len=48, length=12):
        if not 2 <= length <= seq_len // 2:
            raise ValueError(f"length={length}: wanted 2 to {seq_len // 2}, half of seq_len")
        self.vocab_size, self.seq_len, self.length = vocab_size, seq_len, length
        self.gaps = range(length, seq_len - length + 1)
        inputs, targets = self.sample(torch.Generator().manual_seed(0), COUNTED)
        right = (inputs.unsqueeze(1) == targets.unsqueeze(2)).double()  # (B, query, key)
        seen = torch.ones_like(right).tril()
        follows = torch.zeros_like(right)  # keys after an earlier occurrence of the query's symbol
        follows[:, :, 1:] = (inputs.unsqueeze(2) == inputs.unsqueeze(1)).tril(-1)[:, :, :-1]
        asked, guesses = targets != IGNORE, {"any symbol so far": seen, "bigram": follows}
        shares = {name: ((keys * right).sum(2) / keys.sum(2))[asked] for name, keys in guesses.items()}
        self.baselines = {name: -float(share.log().mean()) for name, share in shares.items()}
        self.goal_accuracy = float(shares["bigram"].mean())  # symbols recur by chance, too

    def sample(self, generator, rows):
        """Draw the symbols, the segment's first place, and a later place that it does not overlap."""
        n, T = self.length, self.seq_len
        ids = torch.randint(self.vocab_size, (rows, T), generator=generator)
        # The pair of places is uniform: two numbers in order, of T - 2n + 1 places.
        free = T - 2 * n + 1
        pair = torch.rand(rows, free + 1, generator=generator).argsort(1)[:, :2].sort(1).values
        first, again = pair[:, :1], pair[:, 1:] - 1 + n
        t = torch.arange(T)
        inside = (t >= again) & (t < again + n)
        ids = torch.where(inside, ids.gather(1, (t - again + first).clamp(0, T - 1)), ids)
        targets = torch.full_like(ids, IGNORE)
        asked = inside[:, :-1] & inside[:, 1:]  # the first of the copy is not foretold
        targets[:, :-1][asked] = ids[:, 1:][asked]
        return ids, targets

    def source(self, inputs):
        """Mark every key that holds the symbol after the segment's own one; the copy is the longest run that recurs."""
        B, T = inputs.shape
        same = (inputs.unsqueeze(2) == inputs.unsqueeze(1)).tril(-1)  # (B, query, key)
        run = torch.zeros(B, T + 1, T + 1, dtype=torch.long)  # symbols that agree up to this query and key
        for q in range(T):
            run[:, q + 1, 1:] = (run[:, q, :-1] + 1) * same[:, q]
        run = run[:, 1:, 1:]
        inside = torch.zeros(B, T, T, dtype=torch.bool)
        for q in reversed(range(T)):  # a run is the copy's from its start, once it is long enough
            inside[:, q] = run[:, q] >= self.length
            if q + 1 < T:
                inside[:, q, :-1] |= inside[:, q + 1, 1:] & same[:, q, :-1]
        follower = (inside * torch.arange(1, T + 1)).amax(2)  # 0 outside the copy
        answer = inputs.gather(1, follower.clamp(max=T - 1))
        asked = (follower > 0) & torch.cat([inside[:, 1:].any(2), torch.zeros(B, 1, dtype=torch.bool)], 1)
        return ((inputs.unsqueeze(1) == answer.unsqueeze(2)) & asked.unsqueeze(2)).tril()
