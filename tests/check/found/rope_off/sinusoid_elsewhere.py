import math

import torch
import torch.nn as nn


def positional_encoding(max_len, d_model):
    pe = torch.zeros(max_len, d_model)
    position = torch.arange(0, max_len).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return pe.unsqueeze(0)


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        assert d_model % h == 0
        self.d_k, self.h = d_model // h, h
        self.w_q, self.w_k, self.w_v = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        n = query.size(0)
        query = self.w_q(query).view(n, -1, self.h, self.d_k).transpose(1, 2)
        key = self.w_k(key).view(n, -1, self.h, self.d_k).transpose(1, 2)
        value = self.w_v(value).view(n, -1, self.h, self.d_k).transpose(1, 2)
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        p_attn = self.dropout(scores.softmax(dim=-1))
        x = torch.matmul(p_attn, value).transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k)
        return self.w_o(x)


class Embedder(nn.Module):
    def __init__(self, vocab, d_model, h):
        super().__init__()
        self.table, self.attend = nn.Embedding(vocab, d_model), MultiHeadedAttention(h, d_model)
        self.register_buffer("pe", positional_encoding(512, d_model))

    def forward(self, ids):
        x = self.table(ids) + self.pe[:, : ids.size(1)]
        return self.attend(x, x, x)
