"""The table of faults: every form is wrong, no two are one, and the words can be written."""

from __future__ import annotations

import itertools
import string

import pytest
import torch

from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.grade import GRADE_SIZES
from mhsa_cli.check.match.search import (
    TRIES,
    Case,
    Tries,
    find_common_faults,
    find_one_fault,
    find_right,
    find_several_faults,
    random_input,
)
from mhsa_cli.check.read.reference import Reference, Roles, Spec
from mhsa_cli.check.read.weight_layouts import Layout, LayoutName
from mhsa_cli.check.tensors import max_difference

D, H, T, B = GRADE_SIZES.d_model, GRADE_SIZES.n_heads, GRADE_SIZES.seq_len, GRADE_SIZES.batch_size
FORMS = [(name, form) for name, fault in FAULTS.items() for form in fault.forms]
# Names of q, k and v turned round: for a fused matrix these are orders, for named ones faults.
WORDS = {
    "D": D,
    "H": H,
    "d": D // H,
    "T": T,
    **dict.fromkeys(("root_D", "root_d", "divisor", "factor", "factor_right"), ""),
}


def roles(seed: int = 0, groups: int = H) -> Roles:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *size: 0.3 * torch.randn(*size, generator=generator, dtype=torch.float64)  # noqa: E731
    d = D // H
    weights = [draw(n, d, D) for n in (H, groups, groups)]
    biases = [draw(n, d) for n in (H, groups, groups)]
    return Roles(*weights, *biases, draw(D, D), draw(D))


def base_of(form: dict[str, str]) -> Spec:
    """Give the right spec that a form spoils: a rotated one if it is about rotation."""
    layout = form.get("rope", "none").partition(":")[0]
    return Spec(rope="interleaved" if layout == "none" and "rope" in form else layout)


def groups_for(form: dict[str, str]) -> int:
    return 2 if "groups" in "".join(form.values()) else H


def output(form: dict[str, str], like: dict[str, str] | None = None) -> torch.Tensor:
    positions = 2 * torch.arange(T)
    return Reference(roles(groups=groups_for(like or form)), random_input(B, T, D, 1), positions).output(
        base_of(form)._replace(**form)
    )


def test_there_are_many() -> None:
    assert len(FAULTS) >= 50
    assert sum(bool(fault.forms) for fault in FAULTS.values()) >= 35


def test_sizes_hide_nothing() -> None:
    sizes = [D, H, T, B, D // H, GRADE_SIZES.max_seq_len]
    assert len(set(sizes)) == len(sizes)


def test_their_words_can_be_written() -> None:
    for name, fault in FAULTS.items():
        asked = {field for _, field, _, _ in string.Formatter().parse(fault.says) if field}
        assert asked <= {*WORDS, *(("names", "token", "near", "far", "message") if not fault.forms else ())}, name
        assert fault.title and fault.instead, name


def test_a_fault_gives_another_output_than_the_right_one() -> None:
    for name, form in FORMS:
        made, wanted = output(form), output(base_of(form)._asdict(), form)
        assert made.shape != wanted.shape or max_difference(made, wanted) > 2e-3, (name, form)


def test_no_two_faults_give_the_same_output() -> None:
    outputs = [(name, form, output(form)) for name, form in FORMS]
    for (name, form, made), (other, more, too) in itertools.combinations(outputs, 2):
        same_base = base_of(form) == base_of(more)
        if name != other and same_base and made.shape == too.shape and groups_for(form) == groups_for(more):
            assert max_difference(made, too) > 1e-3, f"{name} {form} is {other} {more}"


def test_the_search_names_what_the_table_computes() -> None:
    for name, form in FORMS:
        given, must_rotate = roles(groups=groups_for(form)), "rope" in form
        layout = Layout(LayoutName("as_they_are", (), ("none", "")), given, {})
        case = Case([layout], 1, random_input(B, T, D, 1), output(form), 2 * torch.arange(T), ("causal",),
                    ("none", "interleaved", "half") if must_rotate else ("none",), ("plain",), must_rotate)  # fmt: skip
        assert find_right(case) is None, (name, form)
        found = find_one_fault([case]) or find_several_faults([case])
        assert found is not None and found[1].faults == (name,), (name, form)


def test_a_spec_without_faults_is_right_and_any_factor_is_fitted() -> None:
    given = roles()
    layout = Layout(LayoutName("as_they_are", (), ("none", "")), given, {})
    for factor, names in ((None, ()), (0.3, ("scale_constant",)), (1.7, ("scale_constant",))):
        spec = Spec() if factor is None else Spec(scale=f"x{factor}")
        x = random_input(B, T, D, 1)
        case = Case([layout], 1, x, Reference(given, x).output(spec), None, ("causal",), ("none",), ("plain",))
        found = find_right(case) or (find_one_fault([case]) or find_several_faults([case]))[1]  # type: ignore[index]
        assert found.faults == names
        assert factor is None or found.factor == pytest.approx(factor, rel=1e-5)


@pytest.mark.parametrize(
    "names",
    [
        ("scale_d_model", "softmax_over_queries", "mask_no_effect"),
        ("scale_none", "mask_no_effect", "merge_by_view"),
        ("softmax_twice", "mask_sees_next", "split_by_view", "out_twice"),
    ],
)
def test_many_at_once_are_found_and_computed_together_as_one_by_one(names: tuple[str, ...]) -> None:
    form = {stage: value for name in names for stage, value in FAULTS[name].forms[0].items()}
    x, layout = random_input(B, T, D, 1), Layout(LayoutName("as_they_are", (), ("none", "")), roles(), {})
    reference = Reference(layout.roles, x)
    case = Case([layout], 1, x, reference.output(Spec()._replace(**form)), None, ("causal",), ("none",), ("plain",))
    found = find_common_faults(case, Tries(TRIES))
    assert found is not None and set(found.faults) == set(names)
    alone = ("scale_none", "softmax_over_queries", "mask_no_effect", "scale_d_model")
    early = [Spec(), *(Spec()._replace(**FAULTS[name].forms[0]) for name in alone)]
    for late in ({}, {"merge": "by_view"}, {"split": "by_view", "out": "without_bias"}):
        specs = [spec._replace(**late) for spec in early]
        together = Reference(layout.roles, x).outputs(early, Spec()._replace(**late))
        for made, spec in zip(together, specs, strict=True):
            assert max_difference(made, reference.output(spec)) < 1e-12


def test_many_computed_together_hold_their_weights_once() -> None:
    """They are the largest tensors of a search, which goes through many ways to merge and project one set of them."""
    reference = Reference(roles(), random_input(B, T, D, 1))
    early = [
        Spec(mask=mask, softmax=softmax) for mask in ("causal", "none") for softmax in ("keys", "queries", "twice")
    ]
    for merge, out in itertools.product(("right", "by_view"), ("right", "twice")):
        reference.outputs(early, Spec(merge=merge, out=out))
    held = {t.untyped_storage().data_ptr(): t.numel() for t in reference._cache.values()}
    weights, scores, heads = len(early) * B * H * T * T, B * H * T * T, 3 * B * T * D
    assert sum(held.values()) == weights + scores + heads
