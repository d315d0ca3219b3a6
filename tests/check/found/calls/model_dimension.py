import copy
import math

import torch.nn as nn


class MultiHeadedAttention(nn.Module):
    def __init__(self, model_dimension, number_of_heads, dropout_probability, log_attention_weights):
        super().__init__()
        assert model_dimension % number_of_heads == 0
        self.head_dimension = model_dimension // number_of_heads
        self.number_of_heads = number_of_heads
        self.qkv_nets = nn.ModuleList([copy.deepcopy(nn.Linear(model_dimension, model_dimension)) for _ in range(3)])
        self.out_projection_net = nn.Linear(model_dimension, model_dimension)
        self.attention_dropout = nn.Dropout(p=dropout_probability)
        self.softmax = nn.Softmax(dim=-1)
        self.log_attention_weights = log_attention_weights
        self.attention_weights = None

    def forward(self, query, key, value, mask):
        n = query.shape[0]
        query, key, value = [
            net(x).view(n, -1, self.number_of_heads, self.head_dimension).transpose(1, 2)
            for net, x in zip(self.qkv_nets, (query, key, value))
        ]
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.head_dimension)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = self.softmax(scores)
        if self.log_attention_weights:
            self.attention_weights = weights
        out = self.attention_dropout(weights) @ value
        return self.out_projection_net(out.transpose(1, 2).reshape(n, -1, self.number_of_heads * self.head_dimension))
