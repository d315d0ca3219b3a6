import torch
from torch import Tensor


def mha(*, inputs: Tensor, q_weight: Tensor, k_weight: Tensor, v_weight: Tensor, o_weight: Tensor, nhead: int) -> Tensor:
    """Multi-head self-attention; each weight is (out, in) as in torch.nn.Linear."""
    b, t, d = inputs.shape
    q = torch.nn.functional.linear(inputs, q_weight).view(b, t, nhead, -1).transpose(1, 2)
    k = torch.nn.functional.linear(inputs, k_weight).view(b, t, nhead, -1).transpose(1, 2)
    v = torch.nn.functional.linear(inputs, v_weight).view(b, t, nhead, -1).transpose(1, 2)
    p = torch.softmax(q @ k.mT / q.size(-1) ** 0.5, -1)
    return torch.nn.functional.linear((p @ v).transpose(1, 2).reshape(b, t, d), o_weight)
