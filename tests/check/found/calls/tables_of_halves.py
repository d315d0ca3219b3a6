import torch
from torch import nn


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


class LlamaLikeAttention(nn.Module):
    def __init__(self, hidden_size, num_heads, num_key_value_heads=None):
        super().__init__()
        self.num_heads, self.kv_heads = num_heads, num_key_value_heads or num_heads
        self.head_dim = hidden_size // num_heads
        self.q_proj = nn.Linear(hidden_size, num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * self.head_dim, hidden_size, bias=False)

    def forward(self, hidden_states, position_embeddings, attention_mask):
        b, n, _ = hidden_states.shape
        q = self.q_proj(hidden_states).view(b, n, -1, self.head_dim).transpose(1, 2)
        k = self.k_proj(hidden_states).view(b, n, -1, self.head_dim).transpose(1, 2)
        v = self.v_proj(hidden_states).view(b, n, -1, self.head_dim).transpose(1, 2)
        cos, sin = position_embeddings
        q = q * cos[:, None] + rotate_half(q) * sin[:, None]
        k = k * cos[:, None] + rotate_half(k) * sin[:, None]
        k, v = (t.repeat_interleave(self.num_heads // self.kv_heads, dim=1) for t in (k, v))
        w = q @ k.transpose(2, 3) * self.head_dim**-0.5 + attention_mask
        return self.o_proj((w.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))
