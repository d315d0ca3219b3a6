import torch


def rotary_table(d, n, base=10000.0):
    steps = torch.arange(0, d, 2).float()
    rates = base ** (-2 * steps / d)
    angle = torch.arange(n).float()[:, None] * rates
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def turn(t, cos, sin):
    h = t.size(-1) // 2
    return t * cos + torch.cat([-t[..., h:], t[..., :h]], dim=-1) * sin
