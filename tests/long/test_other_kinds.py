"""Attention of other kinds: none of them may be called wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.check.match import search
from tests.check.grading import described, grade_text, names_of
from tests.check.kinds import FUSED, GROUPED, PAIRED, broken, law, written

NORMED = ("# split", "q, k = F.normalize(q, dim=-1) * 3, F.normalize(k, dim=-1)")
SLOPES = "2.0 ** -torch.arange(1, self.h + 1, dtype=x.dtype).view(-1, 1, 1)"
APART = "(torch.arange(T)[:, None] - torch.arange(T)).abs()"
ALIBI = ("# scores", f"s = s - {SLOPES} * {APART}")
WINDOW = ("# scores", f"s = s.masked_fill({APART} > 2, -math.inf)")
AHEAD = ("# scores", f"s = s.masked_fill({APART} > 1 + torch.arange(self.h).view(-1, 1, 1), -math.inf)")

OTHERS = {
    "grouped, normed": (GROUPED, NORMED),
    "grouped, window": (GROUPED, WINDOW),
    "grouped, ALiBi": (GROUPED, ALIBI),
    "q and kv, normed": (PAIRED, NORMED),
    "q and kv, window": (PAIRED, WINDOW),
    "q and kv, ALiBi": (PAIRED, ALIBI),
    "fused, normed": (FUSED, NORMED),
    "fused, window": (FUSED, WINDOW),
    "fused, ALiBi": (FUSED, ALIBI),
    "a window for each head": (FUSED, AHEAD),
    "normed over all heads": (FUSED, ("# flat", "q, k = F.normalize(q, dim=-1) * 3, F.normalize(k, dim=-1)")),
    "keys normed by a layer": (FUSED, ("# made", "self.kn = nn.LayerNorm(self.d)"), ("# split", "k = self.kn(k)")),
    "keys moved": (FUSED, ("# made", "self.shift = nn.Parameter(torch.ones(self.d))"),
                   ("# split", "k = F.normalize(k, dim=-1) + self.shift")),
    "normed over all heads by a layer": (FUSED, ("# made", "self.qn = nn.RMSNorm(d_model)"),
                                         ("# flat", "q = self.qn(q)")),
    "a temperature for each head": (FUSED, ("# made", "self.t = nn.Parameter(torch.ones(n_heads, 1, 1))"),
                                    ("# scores", "s = s * self.t")),
    "a fixed temperature for each head": (
        FUSED, ("# made", "self.register_buffer('rate', torch.linspace(1, 2, n_heads).view(-1, 1, 1))"),
        ("# scores", "s = s * self.rate")),
    "heads that talk": (FUSED, ("# made", "self.talk = nn.Parameter(torch.eye(n_heads))"),
                        ("# scores", "s = torch.einsum('bhij,hg->bgij', s, self.talk)")),
    "a sink for each head": (
        FUSED, ("# made", "self.sink = nn.Parameter(torch.zeros(n_heads))"),
        ("torch.softmax(s, -1)",
         "torch.softmax(torch.cat([s, self.sink.view(-1, 1, 1).expand(B, self.h, T, 1)], -1), -1)[..., :-1]")),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_another_kind_of_attention_is_not_clear(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.2)
    body, *changes = OTHERS[kind]
    found = grade_text(written(body, *changes), "Block", tmp_path)
    assert found.verdict == "unclear" and broken(found) == {"equal_to_reference"}, described(found)


@pytest.mark.parametrize(("d_model", "n_heads"), [(8, 2), (5, 5), (2, 2)])
def test_its_heads_are_as_separate_in_a_small_one(
    d_model: int, n_heads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.2)
    body, *changes = OTHERS["fused, window"]
    found = grade_text(written(body, *changes), "Block", tmp_path, d_model=d_model, n_heads=n_heads)
    assert law(found, "heads_separate").passed is True, described(found)


@pytest.mark.parametrize("body", [FUSED, GROUPED, PAIRED])
def test_the_same_blocks_without_it_are_right(body: str, tmp_path: Path) -> None:
    found = grade_text(written(body), "Block", tmp_path)
    assert found.verdict == "right", described(found)


@pytest.mark.parametrize("change", [
    ("w = self.drop(w)", "w = self.drop(w).roll(1, 1)"),
    ("# split", "v = v.roll(1, 1)"),
    ("# scores", "s = s + s.mean(1, keepdim=True)"),
])  # fmt: skip
def test_heads_that_mix_are_wrong(change: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.2)
    found = grade_text(written(FUSED, change), "Block", tmp_path)
    assert found.verdict == "wrong" and "heads_separate" in broken(found), described(found)


def test_an_output_in_another_order_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.2)
    change = ("y = self.out((w @ v).transpose(1, 2).reshape(B, T, D))",
              "y = self.out(1.1 * self.out((w @ v).transpose(1, 2).reshape(B, T, D)))")  # fmt: skip
    found = grade_text(written(FUSED, change), "Block", tmp_path)
    assert found.verdict == "wrong" and "order_of_heads" in broken(found), described(found)


def test_an_untested_law_of_heads_says_what_the_layout_does_not_cover(tmp_path: Path) -> None:
    body, *changes = OTHERS["a temperature for each head"]
    found = grade_text(written(body, *changes), "Block", tmp_path)
    seen = law(found, "order_of_heads")
    assert (seen.passed, seen.code, seen.facts) == (None, "not_covered", {"names": ["t"]})


def test_queries_and_keys_swapped_are_named_beside_one_matrix_for_keys_and_values(tmp_path: Path) -> None:
    found = grade_text(written(PAIRED, ("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)")), "Block", tmp_path)
    assert names_of(found) == {"names_q_k_swapped"}, described(found)
    turned = written(PAIRED, ("(k, v) = ", "(v, k) = "), ("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)"))
    assert names_of(found := grade_text(turned, "Block", tmp_path)) == {"names_q_k_swapped"}, described(found)
    found = grade_text(written(PAIRED, ("(k, v) = ", "(v, k) = ")), "Block", tmp_path)
    assert found.verdict == "right", described(found)


@pytest.mark.parametrize("change", [
    ("# scores", "s = s + 0 * self.idle.sum()"),
    ("# scores", "s = s"),
])  # fmt: skip
def test_a_parameter_without_influence_is_unused(change: tuple[str, str], tmp_path: Path) -> None:
    made = ("# made", "self.idle = nn.Parameter(torch.ones(5, 3))")
    found = grade_text(written(FUSED, made, change), "Block", tmp_path)
    assert names_of(found) == {"parameter_unused"}, described(found)


def test_a_block_without_parameters_is_told_so(tmp_path: Path) -> None:
    source = "from torch import nn\n\nclass Attention(nn.Module):\n    def forward(self, x):\n        return x\n"
    found = grade_text(source, "Attention", tmp_path)
    assert law(found, "parameters_used").code == "no_parameters"
    assert found.verdict != "right"
