import math

import torch
from torch import nn


class MHA(nn.Module):
    def __init__(self, hid_dim, n_heads):
        super().__init__()
        self.n_heads, self.head_dim = n_heads, hid_dim // n_heads
        self.fc_q, self.fc_k, self.fc_v, self.fc_o = (nn.Linear(hid_dim, hid_dim) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        batch_size = query.shape[0]
        Q, K, V = self.fc_q(query), self.fc_k(key), self.fc_v(value)
        Q, K, V = (t.view(batch_size, -1, self.n_heads, self.head_dim).permute(0, 2, 1, 3) for t in (Q, K, V))
        energy = torch.matmul(Q, K) / math.sqrt(self.head_dim)
        if mask is not None:
            energy = energy.masked_fill(mask == 0, -1e10)
        x = torch.matmul(torch.softmax(energy, dim=-1), V)
        return self.fc_o(x.permute(0, 2, 1, 3).contiguous().view(batch_size, -1, self.n_heads * self.head_dim))
