import torch
import torch.nn as nn


class GroupedQueryAttention(nn.Module):
    def __init__(self, embed_dim, num_q_heads, num_kv_heads):
        super().__init__()
        assert num_q_heads % num_kv_heads == 0
        self.num_q_heads, self.num_kv_heads = num_q_heads, num_kv_heads
        self.head_dim = embed_dim // num_q_heads
        self.query = nn.Linear(embed_dim, self.head_dim * num_q_heads, bias=False)
        self.key = nn.Linear(embed_dim, self.head_dim * num_kv_heads, bias=False)
        self.value = nn.Linear(embed_dim, self.head_dim * num_kv_heads, bias=False)
        self.proj = nn.Linear(self.head_dim * num_q_heads, embed_dim, bias=False)

    def forward(self, x):
        b, n, _ = x.shape
        r = self.num_q_heads // self.num_kv_heads
        q = self.query(x).view(b, n, self.num_q_heads, self.head_dim).transpose(1, 2)
        k = self.key(x).view(b, n, self.num_kv_heads, self.head_dim).transpose(1, 2)
        v = self.value(x).view(b, n, self.num_kv_heads, self.head_dim).transpose(1, 2)
        k = k[:, :, None].expand(-1, -1, r, -1, -1).flatten(1, 2)
        v = v[:, :, None].expand(-1, -1, r, -1, -1).flatten(1, 2)
        att = (q @ k.mT * self.head_dim**-0.5).masked_fill(torch.ones(n, n).triu(1) > 0, -torch.inf).softmax(-1)
        return self.proj((att @ v).transpose(1, 2).reshape(b, n, -1))
