import torch.nn.functional as F
from torch import nn

from chatlab import __version__
from chatlab.common import from_heads, to_heads


class Attention(nn.Module):
    made_by = __version__

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x):
        q, k, v = (to_heads(f(x), self.n_heads) for f in (self.q, self.k, self.v))
        return self.o(from_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
