"""As in a model with one class for encoder and decoder: the buffer is always there, the setting decides."""

import torch
from torch import nn


class Config:
    def __init__(self, hidden_size=768, num_attention_heads=12, max_position_embeddings=512, is_decoder=False):
        self.hidden_size = hidden_size
        self.num_attention_heads = num_attention_heads
        self.max_position_embeddings = max_position_embeddings
        self.is_decoder = is_decoder


class SelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.hidden_size // config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        n = config.max_position_embeddings
        self.register_buffer("bias", torch.tril(torch.ones(n, n, dtype=torch.bool)), persistent=False)

    def transpose_for_scores(self, x):
        return x.view(*x.shape[:-1], self.num_attention_heads, self.attention_head_size).permute(0, 2, 1, 3)

    def forward(self, hidden_states):
        q, k, v = (self.transpose_for_scores(f(hidden_states)) for f in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-1, -2)) / self.attention_head_size**0.5
        if self.config.is_decoder:
            n = scores.size(-1)
            scores = scores.masked_fill(~self.bias[:n, :n], torch.finfo(scores.dtype).min)
        context = torch.matmul(nn.functional.softmax(scores, dim=-1), v)
        return self.dense(context.permute(0, 2, 1, 3).flatten(2))
