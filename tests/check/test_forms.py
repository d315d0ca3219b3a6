"""Wrong forms planted into code: the fault by name, on its line, with the numbers of what was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.grading import described, grade_text, names_of
from tests.check.kinds import FUSED, GROUPED, HEAD, written

EACH = "q, k, v = (t.view(B, T, self.h, -1).transpose(1, 2) for t in (q, k, v))"
GQA = (
    HEAD
    + """
        self.q = nn.Linear(d_model, d_model, bias=False)
        self.k = nn.Linear(d_model, 2 * self.d, bias=False)
        self.v = nn.Linear(d_model, 2 * self.d, bias=False)

    def forward(self, x):
        B, T, D = x.shape
        g, r, d = 2, self.h // 2, self.d
        q = self.q(x).view(B, T, g, r, d)
        k, v = self.k(x).view(B, T, g, d), self.v(x).view(B, T, g, d)
        w = self.drop(torch.softmax(torch.einsum("btgrd,bsgd->bgrts", q, k) / math.sqrt(d), -1))
        y = torch.einsum("bgrts,bsgd->bgrtd", w, v)
        y = y.permute(0, 3, 1, 2, 4)  # B T g r d
        return self.out(y.reshape(B, T, D))
"""
)


def split_by_view(roles: str) -> tuple[str, str]:
    """Make a change: the roles are viewed without a transpose, the others are split as they should be."""
    split = [f"{r}.reshape(B, self.h, T, -1)" if r in roles else f"{r}.view(B, T, self.h, -1).transpose(1, 2)"
             for r in "qkv"]  # fmt: skip
    return EACH, f"q, k, v = {', '.join(split)}"


@pytest.mark.parametrize(
    ("name", "body", "changes"),
    [
        *((f"split_by_view_{roles}", FUSED, [split_by_view(roles)]) for roles in ("q", "k", "v", "qk", "kv")),
        ("groups_tiled", GROUPED, [("t.repeat_interleave(self.h // 2, 1)", "t.repeat(1, self.h // 2, 1, 1)")]),
        ("groups_repeated_wrong", GROUPED,
         [("t.repeat_interleave(self.h // 2, 1)",
           "t.unsqueeze(3).expand(-1, -1, -1, self.h // 2, -1).reshape(B, self.h, T, -1)")]),
        ("groups_repeated_wrong", GROUPED,
         [("t.repeat_interleave(self.h // 2, 1)",
           "t.transpose(1, 2).flatten(2).repeat_interleave(self.h // 2, -1).view(B, T, self.h, -1).transpose(1, 2)")]),
    ],
)  # fmt: skip
def test_a_wrong_split_is_named(name: str, body: str, changes: list[tuple[str, str]], tmp_path: Path) -> None:
    found = grade_text(written(body, *changes), "Block", tmp_path)
    assert names_of(found) == {name}, described(found)


@pytest.mark.parametrize(("axes", "name"), [
    ("0, 3, 2, 1, 4", "groups_merged_wrong"),
    ("0, 1, 3, 2, 4", "merge_by_view"),
    ("0, 2, 1, 3, 4", "merge_by_view"),
    ("0, 1, 2, 3, 4", "merge_by_view"),
])  # fmt: skip
def test_groups_that_are_merged_in_another_order_are_named(axes: str, name: str, tmp_path: Path) -> None:
    right = grade_text(GQA, "Block", tmp_path)
    assert right.verdict == "right", described(right)
    source = GQA.replace("y.permute(0, 3, 1, 2, 4)", f"y.permute({axes})")
    found = grade_text(source, "Block", tmp_path)
    assert names_of(found) == {name}, described(found)
    assert source.splitlines()[(found.faults[0].line or 0) - 1].strip().startswith(("y = y.permute", "return"))


@pytest.mark.parametrize(("width", "root"), [("D", "4.90"), ("self.d", "2.45")])
def test_a_scale_after_the_softmax_is_told_with_its_number(width: str, root: str, tmp_path: Path) -> None:
    changes = [(" / math.sqrt(self.d)", ""), ("w = self.drop(w)", f"w = self.drop(w / {width} ** 0.5)")]
    found = grade_text(written(FUSED, *changes), "Block", tmp_path)
    assert names_of(found) == {"scale_after_softmax"} and root in found.faults[0].explanation, described(found)


def test_four_faults_at_once_are_named(tmp_path: Path) -> None:
    changes = [
        (EACH, "q, k, v = (t.reshape(B, self.h, T, -1) for t in (q, k, v))"),
        ("q @ k.transpose(-2, -1)", "q @ k.reshape(B, self.h, self.d, T)"),
        ("torch.softmax(s, -1)", "torch.softmax(s, 1)"),
        ("self.out((w @ v).transpose(1, 2).reshape(B, T, D))", "self.out((w @ v).reshape(B, T, D))"),
        ("s = s.masked_fill(", "s.masked_fill("),
    ]
    found = grade_text(written(FUSED, *changes), "Block", tmp_path)
    wanted = {"split_and_merge_by_view", "key_reshaped", "softmax_over_heads", "mask_no_effect"}
    assert names_of(found) == wanted, described(found)
