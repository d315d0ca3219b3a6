"""Attention of other kinds: none of them may be called wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.check.match import search
from tests.check.grading import described, grade_text, names_of
from tests.check.kinds import FUSED, GROUPED, PAIRED, broken, law, written

WINDOW = ("# scores", "s = s.masked_fill((torch.arange(T)[:, None] - torch.arange(T)).abs() > 2, -math.inf)")

OTHERS = {
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
    monkeypatch.setattr(search, "TRIES", 500)
    body, *changes = OTHERS[kind]
    found = grade_text(written(body, *changes), "Block", tmp_path)
    assert found.verdict == "unclear" and not broken(found), described(found)


@pytest.mark.parametrize(("d_model", "n_heads"), [(8, 2), (5, 5), (2, 2)])
def test_its_heads_are_as_separate_in_a_small_one(
    d_model: int, n_heads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TRIES", 500)
    body, *changes = FUSED, WINDOW
    found = grade_text(written(body, *changes), "Block", tmp_path, d_model=d_model, n_heads=n_heads)
    assert found.verdict == "right" and law(found, "heads_separate").passed is True, described(found)


@pytest.mark.parametrize("body", [FUSED, GROUPED, PAIRED])
def test_the_same_blocks_without_it_are_right(body: str, tmp_path: Path) -> None:
    found = grade_text(written(body), "Block", tmp_path)
    assert found.verdict == "right", described(found)


@pytest.mark.parametrize("change", [
    ("w = self.drop(w)", "w = self.drop(w).roll(1, 1)"),
    ("# split", "v = v.roll(1, 1)"),
    ("# scores", "s = s + s.mean(1, keepdim=True)"),
])  # fmt: skip
def test_heads_that_mix_are_not_right(change: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TRIES", 500)
    found = grade_text(written(FUSED, change), "Block", tmp_path)
    assert found.verdict == "unclear", described(found)


def test_an_output_in_another_order_is_not_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TRIES", 500)
    change = ("y = self.out((w @ v).transpose(1, 2).reshape(B, T, D))",
              "y = self.out(1.1 * self.out((w @ v).transpose(1, 2).reshape(B, T, D)))")  # fmt: skip
    found = grade_text(written(FUSED, change), "Block", tmp_path)
    assert found.verdict == "unclear", described(found)


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
