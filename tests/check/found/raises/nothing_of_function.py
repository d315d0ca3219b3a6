import torch


def self_attention(x, w_q, w_k, w_v, w_o, n_heads):
    B, T, D = x.shape
    heads = []
    for q, k, v in zip(*((x @ w).chunk(n_heads, -1) for w in (w_q, w_k, w_v))):
        weights = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, dim=-1)
        heads.append(weights @ v)
    out = torch.cat(heads, dim=-1) @ w_o
    print("output", tuple(out.shape))
