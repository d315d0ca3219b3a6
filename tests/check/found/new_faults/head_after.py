import torch
import torch.nn as nn
from torch.nn import functional as F


class AttentionHead(nn.Module):
    def __init__(self, embed_dim, head_dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(embed_dim, head_dim) for _ in range(3))

    def forward(self, hidden_state):
        q, k, v = self.q(hidden_state), self.k(hidden_state), self.v(hidden_state)
        weights = F.softmax(torch.bmm(q, k.transpose(1, 2)), dim=-1) * hidden_state.size(-1) ** -0.5
        return torch.bmm(weights, v)


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = nn.ModuleList([AttentionHead(embed_dim, embed_dim // num_heads) for _ in range(num_heads)])
        self.output_linear = nn.Linear(embed_dim, embed_dim)

    def forward(self, hidden_state):
        return self.output_linear(torch.cat([h(hidden_state) for h in self.heads], dim=-1))
