"""Attention of other kinds is right, its kind is told, and a fault inside it is named as in a plain block."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.check.match import search
from mhsa_cli.check.read import masks
from mhsa_cli.records.check import KINDS
from tests.check.grading import described, grade_text, names_of
from tests.check.kinds import FUSED, GROUPED, PAIRED, written

HIDE = "s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)"
NO_EFFECT = (HIDE, HIDE.removeprefix("s = "))
OVER_QUERIES = ("torch.softmax(s, -1)", "torch.softmax(s, -2)")
BY_WIDTH = ("math.sqrt(self.d)", "math.sqrt(D)")
APART = "(torch.arange(T)[:, None] - torch.arange(T))"
SLOPES = "2.0 ** -torch.arange(1, self.h + 1, dtype=x.dtype).view(-1, 1, 1)"
ALIBI = ("# scores", f"s = s - {SLOPES} * {APART}.abs()")
NORMS = ("# made", "self.q_norm, self.k_norm = nn.RMSNorm(self.d), nn.RMSNorm(self.d)")
NORMED = ("# split", "q, k = self.q_norm(q), self.k_norm(k)")
GATE = ("# made", "self.gate = nn.Linear(d_model, d_model)")
GATED = ("return y", "return y * torch.sigmoid(self.gate(x))")


def seen(which: str) -> tuple[str, str]:
    """Make a change: query i sees the keys j of a condition."""
    return HIDE, f"i, j = torch.arange(T)[:, None], torch.arange(T)\n        s = s.masked_fill(~({which}), -math.inf)"


@pytest.mark.parametrize(("which", "kind", "first"), [
    ("(i >= j) & (i - j < 3)", "sliding_window", "x......"),
    ("(i - j).abs() < 3", "sliding_window", "xxx...."),
    ("(i >= j) | (j < 3)", "prefix", "xxx...."),
    ("i // 3 == j // 3", "blocks", "xxx...."),
    ("i // 2 >= j // 2", "blocks", "xx....."),
    ("i != j", "others", ".xxxxxx"),
    ("(i >= j) & ((i - j) % 2 == 0)", "dilated", "x......"),
    ("(i >= j) & (i - j < torch.arange(2, 2 + self.h).view(-1, 1, 1))", "mask_by_head", "x......"),
])  # fmt: skip
def test_a_mask_that_follows_a_rule_is_right_and_drawn(which: str, kind: str, first: str, tmp_path: Path) -> None:
    found = grade_text(written(FUSED, seen(which)), "Block", tmp_path)
    assert (found.verdict, found.codes[KINDS], found.mask[0]) == ("right", kind, first), described(found)


@pytest.mark.parametrize(("which", "fault"), [
    ("(i > j) | (j == 0)", "mask_hides_self_after_first"),
    ("i + 2 >= j", "mask_sees_two"),
    ("i + 1 >= j", "mask_sees_next"),
    ("i <= j", "mask_transposed"),
])  # fmt: skip
def test_a_mask_that_no_design_has_is_a_fault(which: str, fault: str, tmp_path: Path) -> None:
    found = grade_text(written(FUSED, seen(which)), "Block", tmp_path)
    assert names_of(found) == {fault} and KINDS not in found.codes and len(found.mask) == 7, described(found)


@pytest.mark.parametrize(("body", "kind", "changes"), [
    (FUSED, "qk_norm", [NORMS, NORMED]),
    (GROUPED, "qk_norm", [("# split", "q, k = F.normalize(q, dim=-1) * 3, F.normalize(k, dim=-1)")]),
    (FUSED, "qk_norm", [("# made", "self.qn = nn.LayerNorm(d_model)"), ("# flat", "q = self.qn(q)")]),
    (PAIRED, "alibi", [ALIBI]),
    (FUSED, "alibi", [("# scores", f"s = s + {SLOPES} * torch.arange(T)")]),
    (FUSED, "relative_bias", [("# made", "self.rel = nn.Embedding(16, n_heads)"),
                              ("# scores", f"s = s + self.rel({APART}.clamp(0, 15)).permute(2, 0, 1)")]),
    (FUSED, "gate", [GATE, GATED]),
    (FUSED, "gate", [("# made", "self.to_gates = nn.Linear(d_model, n_heads)"),
                     ("(w @ v)", "(w @ v * torch.sigmoid(self.to_gates(x)).transpose(1, 2)[..., None])")]),
])  # fmt: skip
def test_another_kind_is_right_and_told(body: str, kind: str, changes: list[tuple[str, str]], tmp_path: Path) -> None:
    found = grade_text(written(body, *changes), "Block", tmp_path)
    assert (found.verdict, found.codes[KINDS]) == ("right", kind), described(found)


ROTATE = """n = {n}
        rate = {base} ** -(torch.arange(0, n, 2, dtype=x.dtype) / {over})
        angle = (torch.arange(T, dtype=x.dtype)[:, None] * rate).repeat(1, 2)
        def turn(t):
            some, rest = t[..., :n], t[..., n:]
            a, b = some.chunk(2, -1)
            return torch.cat([some * angle.cos() + torch.cat([-b, a], -1) * angle.sin(), rest], -1)
        q, k = turn(q), turn(k)"""


def turned(n: int = 6, base: str = "10000.0", over: str = "n", more: str = "") -> tuple[str, str]:
    """Make a change: the first n features of queries and keys are rotated, as halves."""
    return "# split", ROTATE.format(n=n, base=base, over=over) + more


@pytest.mark.parametrize(("n", "base", "kind"), [
    (6, "500000.0", None), (6, "100.0", None), (6, "1e8", None),
    (4, "10000", "partial_rope"), (2, "1e6", "partial_rope"),
])  # fmt: skip
def test_a_rotation_by_any_base_and_of_a_part_is_right(n: int, base: str, kind: str | None, tmp_path: Path) -> None:
    found = grade_text(written(FUSED, turned(n, base)), "Block", tmp_path)
    assert (found.verdict, found.codes.get(KINDS)) == ("right", kind), described(found)
    assert found.codes["positions"] == ("rope" if base == "10000" else "rope_base")


@pytest.mark.parametrize(("change", "fault"), [
    (turned(over="(2 * n)"), "rope_exponent"),
    (turned(over="(2 * n)", more="\n        most = 100"), "rope_exponent"),
    (turned(base="500000.0", more="; v = turn(v)"), "rope_on_value"),
])  # fmt: skip
def test_a_wrong_rotation_is_wrong_by_any_base(change: tuple[str, str], fault: str, tmp_path: Path) -> None:
    found = grade_text(written(FUSED, change), "Block", tmp_path)
    assert names_of(found) == {fault}, described(found)


def test_queries_and_keys_are_normalised_before_or_after_their_rotation(tmp_path: Path) -> None:
    for change in (("# split", f"{NORMED[1]}\n        {turned()[1]}"), turned(more=f"\n        {NORMED[1]}")):
        found = grade_text(written(FUSED, NORMS, change), "Block", tmp_path)
        assert (found.verdict, found.codes[KINDS], found.codes["positions"]) == ("right", "qk_norm", "rope")


@pytest.mark.parametrize(("kind", "fault", "changes"), [
    ("qk_norm", "mask_no_effect", [NORMS, NORMED, NO_EFFECT]),
    ("qk_norm", "softmax_over_queries", [NORMS, NORMED, OVER_QUERIES]),
    ("alibi", "mask_no_effect", [ALIBI, NO_EFFECT]),
    ("alibi", "scale_d_model", [ALIBI, BY_WIDTH]),
    ("gate", "mask_no_effect", [GATE, GATED, NO_EFFECT]),
    ("sliding_window", "scale_d_model", [seen("(i >= j) & (i - j < 3)"), BY_WIDTH]),
])  # fmt: skip
def test_a_fault_in_another_kind_is_named(
    kind: str, fault: str, changes: list[tuple[str, str]], tmp_path: Path
) -> None:
    found = grade_text(written(FUSED, *changes), "Block", tmp_path)
    assert names_of(found) == {fault} and found.codes[KINDS] == kind, described(found)


MLP = (
    "# made",
    """self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)""",
)
BEFORE = ("self.qkv(x)", "self.qkv(self.norm1(x))")


@pytest.mark.parametrize(("fault", "changes"), [
    ("", [BEFORE, ("return y", "x = x + y\n        return x + self.down(F.gelu(self.up(self.norm2(x))))")]),
    ("", [("return y", "x = self.norm1(x + y)\n        return self.norm2(x + self.down(F.relu(self.up(x))))")]),
    ("scale_d_model", [BEFORE, BY_WIDTH, ("return y", "return x + y + self.down(F.silu(self.up(self.norm2(x))))")]),
])  # fmt: skip
def test_a_block_with_an_mlp_is_graded_as_a_whole(fault: str, changes: list[tuple[str, str]], tmp_path: Path) -> None:
    found = grade_text(written(FUSED, MLP, *changes), "Block", tmp_path)
    assert found.codes.get(KINDS) == "mlp" and names_of(found) == ({fault} if fault else set()), described(found)
    assert found.verdict == ("wrong" if fault else "right")


@pytest.mark.parametrize("changes", [
    [OVER_QUERIES],
    [("# scores", "s = s.transpose(1, 2).reshape(B, self.h, T, T)")],
    [(HIDE, HIDE.replace("-math.inf", "-5.0"))],
    [(HIDE, "s = s - 5.0 * torch.ones(T, T).triu(1)")],
])  # fmt: skip
def test_what_only_looks_like_a_mask_or_a_bias_stays_wrong(
    changes: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TRIES", 200)
    found = grade_text(written(FUSED, *changes), "Block", tmp_path)
    assert found.verdict == "wrong" and KINDS not in found.codes, described(found)


def test_a_mask_is_read_as_it_is_written_and_no_two_names_are_one() -> None:
    names = [*masks.WRONG, "causal", "others", "window 3", "around 3", "dilated 2", "prefix 3", "block 3",
             "blocks_before 3", "distances 0;1;4", "by_head window 2,causal"]  # fmt: skip
    for name in names:
        seen = masks.allowed(name, 7)
        assert masks.name_of(seen) == name
        assert "/".join(masks.rows(seen)).count("x") == int(seen.sum())
    drawn = [masks.rows(masks.allowed(name, 7)) for name in names]
    assert all(one != other for n, one in enumerate(drawn) for other in drawn[:n])


def test_a_mask_by_hand() -> None:
    rows = {
        "window 2": "x.../xx../.xx./..xx",
        "around 2": "xx../xxx./.xxx/..xx",
        "prefix 2": "xx../xx../xxx./xxxx",
        "block 2": "xx../xx../..xx/..xx",
        "blocks_before 2": "xx../xx../xxxx/xxxx",
        "dilated 2": "x.../.x../x.x./.x.x",
        "distances 0;3": "x.../.x../..x./x..x",
        "earlier_and_first": "x.../x.../xx../xxx.",
    }
    assert {name: "/".join(masks.rows(masks.allowed(name, 4))) for name in rows} == rows
