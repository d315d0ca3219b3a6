import torch
import torch.nn as nn

GPT_CONFIG = {
    "vocab_size": 50257,
    "context_length": 256,
    "emb_dim": 768,
    "n_heads": 12,
    "n_layers": 12,
    "drop_rate": 0.1,
    "qkv_bias": False,
}


class MultiHeadAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.d_out, self.num_heads = cfg["emb_dim"], cfg["n_heads"]
        self.head_dim = cfg["emb_dim"] // cfg["n_heads"]
        assert self.head_dim * self.num_heads == self.d_out, "d_out must be divisible by num_heads"
        self.W_query = nn.Linear(self.d_out, self.d_out, bias=cfg["qkv_bias"])
        self.W_key = nn.Linear(self.d_out, self.d_out, bias=cfg["qkv_bias"])
        self.W_value = nn.Linear(self.d_out, self.d_out, bias=cfg["qkv_bias"])
        self.out_proj = nn.Linear(self.d_out, self.d_out)
        self.dropout = nn.Dropout(cfg["drop_rate"])
        size = cfg["context_length"]
        self.register_buffer("mask", torch.triu(torch.ones(size, size), diagonal=1))

    def forward(self, x):
        b, num_tokens, _ = x.shape
        keys = self.W_key(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        queries = self.W_query(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        values = self.W_value(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        attn_scores = queries @ keys.transpose(2, 3)
        attn_scores.masked_fill_(self.mask.bool()[:num_tokens, :num_tokens], -torch.inf)
        attn_weights = self.dropout(torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1))
        context = (attn_weights @ values).transpose(1, 2)
        return self.out_proj(context.reshape(b, num_tokens, self.d_out))
