import torch, torch.nn as nn
class GPTNeoXAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.hidden_size = config.hidden_size
        self.head_size = self.hidden_size // self.num_attention_heads
        self.rotary_ndims = int(self.head_size * config.rotary_pct)
        mp = config.max_position_embeddings
        self.register_buffer("bias", torch.tril(torch.ones((mp, mp), dtype=torch.bool)).view(1, 1, mp, mp), persistent=False)
        self.register_buffer("masked_bias", torch.tensor(-1e9), persistent=False)
        inv_freq = 1.0 / (config.rotary_emb_base ** (torch.arange(0, self.rotary_ndims, 2).float() / self.rotary_ndims))
        self.register_buffer("inv_freq", inv_freq)
        self.norm_factor = self.head_size ** -0.5
        self.query_key_value = nn.Linear(self.hidden_size, 3 * self.hidden_size)
        self.dense = nn.Linear(self.hidden_size, self.hidden_size)
    def forward(self, hidden_states):
        b, t, _ = hidden_states.shape
        qkv = self.query_key_value(hidden_states).view(b, t, self.num_attention_heads, 3 * self.head_size)
        query = qkv[..., : self.head_size].permute(0, 2, 1, 3)
        key = qkv[..., self.head_size : 2 * self.head_size].permute(0, 2, 1, 3)
        value = qkv[..., 2 * self.head_size :].permute(0, 2, 1, 3)
        qr, qp = query[..., : self.rotary_ndims], query[..., self.rotary_ndims :]
        kr, kp = key[..., : self.rotary_ndims], key[..., self.rotary_ndims :]
        freqs = torch.outer(torch.arange(t).float(), self.inv_freq)
        emb = torch.cat((freqs, freqs), -1)
        cos, sin = emb.cos(), emb.sin()
        def rot(x):
            h = x.shape[-1] // 2
            return torch.cat((-x[..., h:], x[..., :h]), -1)
        qr, kr = qr * cos + rot(qr) * sin, kr * cos + rot(kr) * sin
        query, key = torch.cat((qr, qp), -1), torch.cat((kr, kp), -1)
        s = torch.matmul(query, key.transpose(-1, -2)) * self.norm_factor
        s = torch.where(self.bias[:, :, :t, :t], s, self.masked_bias.to(s.dtype))
        w = s.softmax(-1).to(value.dtype)
        out = torch.matmul(w, value).permute(0, 2, 1, 3).contiguous().view(b, t, -1)
        return self.dense(out)
