from torch import nn

from tinylm.nn.rotary import Rotary
from tinylm.settings import Settings

from . import masks


class Attention(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        self.n_heads = settings.n_heads
        self.wq = nn.Linear(settings.dim, settings.dim, bias=False)
        self.wk = nn.Linear(settings.dim, settings.dim, bias=False)
        self.wv = nn.Linear(settings.dim, settings.dim, bias=False)
        self.wo = nn.Linear(settings.dim, settings.dim, bias=False)
        self.rotary = Rotary(settings.dim // settings.n_heads)

    def forward(self, x):
        xq, xk, xv = (w(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        xq, xk = self.rotary(xq), self.rotary(xk)
        scores = xq @ xk.mT * xq.size(-1) ** -0.5 + masks.causal(x.size(1))
        return self.wo((scores.softmax(-1) @ xv).transpose(1, 2).flatten(-2))
