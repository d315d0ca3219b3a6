import torch


def causal_scores(q, k):
    """Scores (B, H, T, T) of q and k (B, T, H, d)."""
    s = torch.einsum("bihd,bjhd->bhij", q, k) / q.size(-1) ** 0.5
    return s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -torch.inf)


def causal_scores_old(q, k):
    s = torch.einsum("bihd,bjhd->bhij", q, k) / (q.size(-1) * q.size(-2)) ** 0.5
    s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    return s
