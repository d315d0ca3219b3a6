import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, model_dim: int, num_heads: int) -> None:
        super().__init__()
        assert model_dim % num_heads == 0
        self.num_heads = num_heads
        self.qkv = nn.Linear(model_dim, 3 * model_dim)
        self.output = nn.Linear(model_dim, model_dim)

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        q, k, v = self.qkv(inputs).unflatten(-1, (3, self.num_heads, -1)).movedim((2, 3), (0, 2))
        scores = torch.baddbmm(torch.zeros(1, device=q.device, dtype=q.dtype), q.flatten(0, 1), k.flatten(0, 1).mT)
        scores = scores.view(*q.shape[:2], q.size(2), -1) / q.size(-1) ** 0.5
        blocked = torch.ones_like(scores, dtype=torch.bool).triu(1)
        attention = scores.masked_fill(blocked, -torch.inf).softmax(-1)
        return {"attention": attention, "output": self.output((attention @ v).transpose(1, 2).flatten(2))}
