import torch
import torch.nn as nn
import torch.nn.functional as F


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, num_heads, num_kv_heads):
        super().__init__()
        self.head_dim = d_model // num_heads
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.q_proj = nn.Linear(d_model, num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * self.head_dim, d_model, bias=False)

    def forward(self, x):
        bsz, seq, _ = x.shape
        group = self.num_heads // self.num_kv_heads
        q = self.q_proj(x).view(bsz, seq, self.num_kv_heads, group, self.head_dim)
        k = self.k_proj(x).view(bsz, seq, self.num_kv_heads, self.head_dim)
        v = self.v_proj(x).view(bsz, seq, self.num_kv_heads, self.head_dim)
        logits = torch.einsum("bqgrd,bkgd->bgrqk", q, k) / self.head_dim**0.5
        mask = torch.ones(seq, seq, dtype=torch.bool, device=x.device).tril()
        probs = F.softmax(logits.masked_fill(~mask, torch.finfo(logits.dtype).min), dim=-1)
        out = torch.einsum("bgrqk,bkgd->bgrqd", probs, v)
        return self.o_proj(out.reshape(bsz, seq, -1))
