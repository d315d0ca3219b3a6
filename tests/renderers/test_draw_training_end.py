"""The end of a training in the rows of a terminal: what fits is shown, from hand-made records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mhsa_cli.records.claims import stored
from mhsa_cli.records.heads import HeadMaps, HeadReport, HeadScore, TargetScore, Verdict
from mhsa_cli.records.labels import Label, Role
from mhsa_cli.records.training import EpochRecord
from mhsa_cli.renderers.pictures.fitted_maps import captioned_maps
from mhsa_cli.renderers.pictures.training_end import TrainingEnd, rows_of, training_end
from tests.renderers.drawn import SURFACES, evals, falling, golden, maps, on

MORE = "mhsa inspect-heads copy-h4"
TAIL = ["wrote runs/copy-h4", "next: mhsa explain copy-h4"]
HEADLINE = "Solved by attention: L0.H1 and L0.H2 attend 5 tokens back, to the answer."


def measured(length: int = 12, heads: int = 4, layers: int = 1) -> HeadMaps:
    """Maps whose last head is worth most, the first one least."""
    found = maps(length, heads, layers)
    scores = [
        HeadScore(
            head.layer,
            head.head,
            {"offset": TargetScore(0.9, 0.1, 0.89, 5, 0.01)},
            uniform_delta_nats=float(place),
            label=Label("offset", Role.SHOWN, distance=5),
        )
        for place, head in enumerate(found.heads)
    ]
    verdict = Verdict(True, 7.8, 0.1, 0.002, [stored(HEADLINE)], "64 rows of copy")
    return replace(found, report=HeadReport(verdict, scores))


def ended(found: HeadMaps | None, epochs: int = 4) -> TrainingEnd:
    train = falling()
    table = [EpochRecord(n, 90 * n, 4.0 / n, 3.0 / n, 0.2 * n) for n in range(1, epochs + 1)]
    levels, facts = {"chance": 4.1431}, ["8,384 parameters, 360 steps on cpu, 0.8 s"]
    return TrainingEnd([train, evals(train)], table, levels, 0.016, facts, found, "", TAIL, MORE)


@pytest.mark.parametrize(("name", "kind"), [("training-end-80x24", "truecolor"), ("training-end-80x24-ascii", "ascii")])
def test_the_end_of_a_training_stays_as_it_was(name: str, kind: str) -> None:
    found = training_end(ended(measured()), on(80, kind), 23)
    assert rows_of(found, 80) == 23
    golden(name, found.plain)


@given(
    width=st.integers(20, 150),
    rows=st.integers(12, 70),
    kind=st.sampled_from(sorted(SURFACES)),
    length=st.sampled_from([1, 2, 5, 12, 40, 64]),
    heads=st.integers(1, 9),
    layers=st.integers(1, 2),
    epochs=st.integers(0, 4),
)
def test_whatever_is_shown_fits(
    width: int, rows: int, kind: str, length: int, heads: int, layers: int, epochs: int
) -> None:
    found = training_end(ended(measured(length, heads, layers), epochs), on(width, kind), rows)
    text = " ".join(found.plain.split())
    assert rows_of(found, width) <= rows
    assert HEADLINE in text and text.endswith(TAIL[-1]) and TAIL[0] in text
    shown = sum(f"L{layer}.H{head} " in f"{line} " for line in found.plain.splitlines() for layer in range(2)
                for head in range(9) if not line.startswith("Solved"))  # fmt: skip
    assert MORE in text or "weight" not in text or shown >= heads * layers


@pytest.mark.parametrize(("rows", "names"), [(10, [3, 4, 5, 6, 7]), (30, list(range(8)))])
def test_the_most_important_heads_are_shown_in_their_order_where_all_do_not_fit(rows: int, names: list[int]) -> None:
    found = captioned_maps(measured(heads=8), on(80), rows, MORE, small=True)
    assert found is not None and [head.head for head in found[0].heads] == names
    titles = " ".join(line for line in found[1].plain.splitlines() if line.startswith("L0."))
    assert [int(word[4:]) for word in titles.split() if word.startswith("L0.H")] == names
    assert (f"{len(names)} of 8 heads; all: {MORE}" in found[1].plain) == (len(names) < 8)


def test_a_long_sample_is_pooled_only_where_not_one_head_fits_whole() -> None:
    for rows, size, shown in ((35, 1, 1), (11, 4, 4), (8, 8, 4)):
        found = captioned_maps(measured(64, heads=4), on(80), rows, MORE, small=True)
        assert found is not None and (found[0].size, len(found[0].heads)) == (size, shown)
    assert captioned_maps(measured(64, heads=4), on(80), 4, MORE) is None


def test_short_layers_share_a_band_where_else_they_do_not_fit() -> None:
    for rows, bands in ((9, 1), (15, 2)):
        found = captioned_maps(measured(12, heads=2, layers=2), on(80), rows, MORE, small=True)
        assert found is not None and len(found[0].heads) == 4 and len(found[0].bands) == bands


def test_more_rows_show_more() -> None:
    low, high = (training_end(ended(measured()), on(120), rows).plain for rows in (23, 39))
    assert "effect" not in low and "effect" in high and len(high.splitlines()) == 39


def test_without_maps_the_reason_stands_instead() -> None:
    end = replace(ended(None), note="no attention maps: the block does not give its weights")
    assert end.note in training_end(end, on(80), 23).plain
