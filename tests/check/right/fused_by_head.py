import torch
from torch import nn


class NeoXAttention(nn.Module):
    """The fused layer keeps q, k and v of one head side by side: (heads, 3, d_head)."""

    def __init__(self, hidden_size, num_heads):
        super().__init__()
        assert hidden_size % num_heads == 0
        self.num_heads, self.head_size = num_heads, hidden_size // num_heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states):
        b, t, width = hidden_states.shape
        fused = self.query_key_value(hidden_states).view(b, t, self.num_heads, 3 * self.head_size)
        q, k, v = fused.transpose(1, 2).split(self.head_size, dim=-1)
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * self.head_size**-0.5
        scores = scores + torch.triu(torch.full((t, t), float("-inf"), device=scores.device), 1)
        out = torch.softmax(scores, -1) @ v
        return self.dense(out.transpose(1, 2).reshape(b, t, width))
