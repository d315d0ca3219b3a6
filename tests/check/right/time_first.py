import torch
from torch import nn


class TimeFirstAttention(nn.Module):
    """Inputs are (T, B, D), as recurrent layers have them."""

    def __init__(self, d_model, nhead):
        super().__init__()
        assert d_model % nhead == 0
        self.nhead = nhead
        self.q_net = nn.Linear(d_model, d_model)
        self.k_net = nn.Linear(d_model, d_model)
        self.v_net = nn.Linear(d_model, d_model)
        self.o_net = nn.Linear(d_model, d_model)

    def forward(self, x):
        length, batch, width = x.shape
        q, k, v = (
            net(x).view(length, batch, self.nhead, width // self.nhead) for net in (self.q_net, self.k_net, self.v_net)
        )
        scores = torch.einsum("ibnd,jbnd->bnij", q, k) * (width // self.nhead) ** -0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        prob = scores.masked_fill(later, -torch.inf).softmax(-1)
        context = torch.einsum("bnij,jbnd->ibnd", prob, v)
        return self.o_net(context.reshape(length, batch, width))
