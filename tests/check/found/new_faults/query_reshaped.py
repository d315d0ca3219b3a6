import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.q_lin, self.k_lin, self.v_lin = nn.Linear(n_embd, n_embd), nn.Linear(n_embd, n_embd), nn.Linear(n_embd, n_embd)
        self.out_lin = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        bs, qlen, dim = x.size()
        d = dim // self.n_head
        q = self.q_lin(x).reshape(bs, self.n_head, qlen, d)
        k = self.k_lin(x).reshape(bs, qlen, self.n_head, d).transpose(1, 2)
        v = self.v_lin(x).reshape(bs, qlen, self.n_head, d).transpose(1, 2)
        scores = torch.matmul(q / d**0.5, k.transpose(2, 3))
        weights = torch.softmax(scores, dim=-1)
        context = torch.matmul(weights, v).transpose(1, 2).contiguous().view(bs, qlen, dim)
        return self.out_lin(context)
