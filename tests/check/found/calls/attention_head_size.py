import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, num_attention_heads, attention_head_size, hidden_size):
        super().__init__()
        self.num_attention_heads = num_attention_heads
        self.attention_head_size = attention_head_size
        self.all_head_size = num_attention_heads * attention_head_size
        self.query = nn.Linear(hidden_size, self.all_head_size)
        self.key = nn.Linear(hidden_size, self.all_head_size)
        self.value = nn.Linear(hidden_size, self.all_head_size)
        self.output = nn.Linear(self.all_head_size, hidden_size)

    def transpose_for_scores(self, x):
        return x.view(x.size(0), x.size(1), self.num_attention_heads, self.attention_head_size).permute(0, 2, 1, 3)

    def forward(self, hidden_states):
        query_layer = self.transpose_for_scores(self.query(hidden_states))
        key_layer = self.transpose_for_scores(self.key(hidden_states))
        value_layer = self.transpose_for_scores(self.value(hidden_states))
        scores = torch.matmul(query_layer, key_layer.transpose(-1, -2)) / math.sqrt(self.attention_head_size)
        context = torch.matmul(scores.softmax(dim=-1), value_layer).permute(0, 2, 1, 3).contiguous()
        return self.output(context.view(*context.shape[:2], self.all_head_size))
