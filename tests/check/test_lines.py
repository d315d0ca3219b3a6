"""The line of a fault: small sources, with the name of a rule as a comment at the line that it finds."""

from __future__ import annotations

from textwrap import dedent

import pytest

from mhsa_cli.check.locate import anatomy, heads, modules, rope, scores
from mhsa_cli.check.locate.flow import flow_of

RULES = {name: rule for module in (heads, modules, rope, scores) for name, rule in vars(module).items()}


def line_of(text: str, name: str, place: str, *given: tuple[str, ...]) -> int | None:
    found = anatomy.place_of(anatomy.Anatomy(flow_of(text, name)), RULES[place], *given)
    return None if found is None else found[1]


CLASS = """
class Unused(nn.Module):
    def forward(self, q, k):
        return (q @ k.transpose(1, 2) / math.sqrt(5)).masked_fill(later, -1e9).softmax(-1)

def unused_helper(q, k, mask):
    scores = q @ k.mT / math.sqrt(2)
    return torch.softmax(scores + mask.tril(), 0).reshape(1, 2, 3)

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads  # divides
        self.to_q = nn.Parameter(torch.randn(width, width) / math.sqrt(width))  # shared
        self.to_k = torch.randn(width, width) / math.sqrt(width)  # unregistered
        self.layers = nn.ModuleList([nn.Linear(width, width)])
        past = torch.tril(torch.ones(9, 9))  # mask_shape
        self.past = past  # mask_made
        self.calls = 0

    def forward(self, x):
        x *= 2  # in_place
        q = self.cut(x @ self.to_q)  # query
        k = self.cut(x @ self.to_k)  # key
        v = self.cut(k)  # value
        dots = torch.matmul(  # scores
            q, k.mT
        )
        dots = dots / self.size  # scale
        self.calls = self.calls + 1  # state
        dots[self.past == 0] = -1e9  # mask softmax_place
        w = torch.softmax(dots, -1)  # softmax
        w = w.softmax(-1)  # softmax_again
        dropped = F.dropout(w, 0.1)  # dropout
        y = dropped @ v  # values
        y = self.join(y)
        y = nn.Linear(4, 4)(y)  # created
        return y, dropped  # out dropped_weights

    def cut(self, t):
        return t.view(3, 5, self.heads, -1).transpose(1, 2)  # split

    def join(self, t):
        t = t.transpose(1, 2)
        return t.reshape(3, 5, -1)  # merge
"""

PER_HEAD = """
class Inner(nn.Module):
    def __init__(self, width):
        self.register_buffer("seen", torch.ones(9, 9).tril(1))  # mask_shape

    def forward(self, x):
        k = self.query(x)  # key
        q = self.query(x)
        attn = q @ k.mT  # scores
        attn = attn * 0.3  # scale
        attn = attn.masked_fill(~self.seen, -1e9)  # mask
        attn = attn.softmax(-1)  # softmax
        attn = self.drop(attn)  # dropped_weights
        return attn @ self.value(x)  # values

class Outer(nn.Module):
    def __init__(self, width, n):
        made = [Inner(width)] * n  # shared
        self.parts = made  # unregistered

    def forward(self, x):
        y = [part(x) for part in self.parts]
        return self.proj(torch.cat(y, -1))  # merge out
"""

FUNCTIONS = """
import numpy as np

def softmax(z, axis):
    z = np.exp(z - z.max(axis, keepdims=True))
    return z / z.sum(axis, keepdims=True)

def attend(q, k, v):
    allowed = np.arange(q.shape[-2])[:, None] > np.arange(k.shape[-2])  # mask_made
    logits = q @ k.swapaxes(-1, -2) / 11  # scale scores
    logits = np.where(allowed, logits, -1e9)  # mask
    return softmax(logits, 1) @ v  # softmax values

def block(x, W_q, W_k, W_v, W_o, h):
    q, k, v = (np.stack(np.split(x @ w, h, -1)) for w in (W_q, W_k, W_v))
    heads = attend(q, v, k)  # names
    return heads.reshape(x.shape) @ W_o  # merge out
"""

ROTARY = """
def frequencies(d, theta):
    return 1 / theta ** (torch.arange(d) / d)  # rates

class Turn(nn.Module):
    def __init__(self, d):
        self.rates = frequencies(d, 100.0)

    def forward(self, x, pos):
        a = pos * self.rates
        even, odd = x[..., ::2], x[..., 1::2]
        left = even * a.cos() + odd * a.sin()  # sense
        return torch.cat([left, odd * a.cos() - even * a.sin()], -1)

class Rotary(nn.Module):
    def __init__(self, d):
        self.turn = Turn(d)

    def forward(self, x, pos):
        q, k, v = self.qkv(x).chunk(3, -1)
        q = self.turn_by(q, pos)  # rotation positions
        k = self.turn_by(k, pos)  # rotation_of_keys
        v = self.turn_by(v, pos)  # rotation_of_values
        scale = q.size(1) ** -0.5  # scale
        return self.out((q @ k.mT * scale).softmax(-1) @ v)  # scores

    def turn_by(self, t, pos):
        return self.turn(t, pos)
"""


HALVES = """
def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat([b, -a], -1)  # sense

def rotated(x, angles):
    return x * angles.cos() + rotate_half(x) * angles.sin()

class Halves(nn.Module):
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        angles = torch.arange(self.n_heads)[:, None]  # positions
        angles = torch.cat((angles, angles), -1)  # angles
        q, k = rotated(q, angles), rotated(k, angles)  # rotation
        return self.dropout(q @ k.mT).softmax(-1) @ v  # dropout_before
"""

UNREAD = """
def apply_rope(x, cos, sin):
    x = x.contiguous()
    return x  # positions

class Plain(nn.Module):
    def forward(self, x, cos, sin):
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        return (q @ k.mT).softmax(-1) @ v
"""

# A correct line is never found: the one beside it is.
KERNEL = """
class Fast(nn.Module):
    def __init__(self, width, p):
        self.fast, self.causal, self.scale = True, True, width ** -0.5
        self.p, self.drop = p, nn.Dropout(p)

    def forward(self, x, q, k, v):
        share = self.p if self.training else 0.0
        if self.fast:
            q = q * self.scale  # scale_again
            a = F.scaled_dot_product_attention(q, k, v, dropout_p=share)
            return F.scaled_dot_product_attention(q, k, v, None, self.p)  # dropout
        w = self.drop(torch.softmax(q @ k.mT * self.scale, -1))
        return F.dropout(w, self.p, self.training) @ v
"""

APART = """
def normalise(z, over):
    z = z.exp()
    return z / z.sum(over)

def low(s):
    seen = s.new_ones(9, 9).tril()
    return s.masked_fill(seen == 0, LOW)

LOW = -10.0  # fill

class Apart:
    def __init__(self, width):
        self.scale = width ** -0.5

    def __call__(self, x):
        q, k, v = self.qkv(x)
        s = (q * self.scale) @ k.mT  # scale_again
        s = s * self.scale  # scale_used
        low(s)  # mask_lost
        w = normalise(s, -2)  # softmax
        w = w / math.sqrt(5)  # scale_after
        w = low(w)  # mask_order
        return w @ v
"""

OWN_SOFTMAX = """
def softmax(z):
    z = np.exp(z - z.max(-2, keepdims=True))
    return z / z.sum(-2, keepdims=True)  # softmax

def attend(q, k, v, heads, causal):
    heads, causal = len(heads), bool(causal)
    scores = q @ k.T * heads
    scores = scores + np.triu(np.full((9, 9), -10.0))  # fill
    return softmax(scores) @ v, torch.sigmoid(scores)  # softmax_kind
"""

SOURCES = {
    "Fast": KERNEL,
    "Apart": APART,
    "attend": OWN_SOFTMAX,
    "Block": CLASS,
    "Outer": PER_HEAD,
    "block": FUNCTIONS,
    "Rotary": ROTARY,
    "Halves": HALVES,
    "Plain": UNREAD,
}
WANTED = [
    (name, place, number)
    for name, text in SOURCES.items()
    for number, line in enumerate(text.splitlines(), 1)
    if "  # " in line
    for place in line.partition("  # ")[2].split()
]


def test_a_part_is_pointed_at() -> None:
    assert len(WANTED) > 60
    for name, place, number in WANTED:
        assert line_of(SOURCES[name], name, place) == number, (name, place)


@pytest.mark.parametrize(
    "place", ["rotation", "rates", "sense", "merge", "unregistered", "in_place", "state", "created"]
)
def test_what_the_code_lacks_has_no_line(place: str) -> None:
    text = "def rope(x):\n    return x.cos() * x.view(3)\n\ndef f(q, k, v):\n    return (q @ k.T).softmax(-1) @ v\n"
    assert line_of(text, "f", place) is None


def test_the_assignment_of_a_parameter_without_use() -> None:
    text = dedent(
        """
        class Other:
            def __init__(self):
                self.gate = nn.Linear(3, 5)
        class A:
            def __init__(self):
                self.part = Other()
                self.gate = nn.Linear(3, 5)
            def forward(self, x):
                return self.part(x)
        """
    )
    assert line_of(text, "A", "unused", ("gate.weight", "gate.bias")) == 8
    assert line_of(text, "A", "unused", ("nowhere",)) is None


@pytest.mark.parametrize("text", ["made = Block(4, 2)", "def made(d):\n    block = Block(d, 2)\n    return block"])
def test_an_instance_or_a_factory_stands_for_its_class(text: str) -> None:
    wanted = next(number for name, place, number in WANTED if (name, place) == ("Block", "scores"))
    assert line_of(f"{CLASS}\n{text}\n", "made", "scores") == wanted


def test_a_part_of_a_base_class_is_the_own_one() -> None:
    assert line_of(f"{CLASS}\nclass Child(Block):\n    pass\n", "Child", "out") == line_of(CLASS, "Block", "out")


def test_a_chain_over_many_lines_is_pointed_at_where_the_part_stands() -> None:
    text = "def f(q, k, v):\n    return (\n(q @ k.T)\n.masked_fill(m, 0)\n.softmax(0)\n@ v\n)\n"
    found = {place: line_of(text, "f", place) for place in ("scores", "mask", "softmax", "values")}
    assert found == {"scores": 3, "mask": 4, "softmax": 5, "values": 6}


def test_a_layer_that_rests_in_eval_has_no_line() -> None:
    text = "class A:\n def __init__(s):\n  s.d = nn.Dropout(.1)\n def forward(self, q, k, v):\n  "
    right = "return self.d((q @ k.T).softmax(-1)) @ v\n"
    assert line_of(text + right, "A", "dropout") is None
    assert line_of(text + "self.d.train()\n  " + right, "A", "dropout") == 5
    assert line_of(text + "return nn.Dropout(.1)((q @ k.T).softmax(-1)) @ v\n", "A", "dropout") == 5


def test_a_name_that_is_nowhere_has_no_line() -> None:
    assert line_of("x = 1", "missing", "scores") is None
