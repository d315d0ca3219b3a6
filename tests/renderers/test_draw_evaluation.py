"""The figures of an evaluation by task and by place, from hand-made records."""

from __future__ import annotations

import pytest

from mhsa_cli.records.evaluation import Evaluation, Place
from mhsa_cli.renderers.kit.text_lines import stacked
from mhsa_cli.renderers.pictures.evaluation import evaluation_picture, places_picture
from tests.renderers.drawn import SURFACES, golden, on


def made(
    settings: dict[str, object], first: int, accuracies: list[float], exact: int, shift: int | None = None
) -> Evaluation:
    positions = [Place(first + i, 40, 3 * (1 - value), value) for i, value in enumerate(accuracies)]
    answers = [Place(i, 40 - (shift or 0) * i, 0.1, value) for i, value in enumerate(accuracies)]
    mean = sum(accuracies) / len(accuracies)
    figures = 3 * (1 - mean), 0.0123, mean, 0.004, 40, exact, exact / 50, exact / 40
    return Evaluation(settings, 40, 7 if not settings else 0, *figures, 4.1589, 1 / 64, positions, answers)


TRAINED = made({}, 6, [1.0, 0.9, 0.84, 0.52, 0.04, 0.0], 31)
LONGER = made({"seq_len": 48, "min_length": None}, 24, [1 - i / 24 for i in range(24)], 2)


def test_tables_and_places() -> None:
    parts = [evaluation_picture([TRAINED, LONGER], on(80, "none")), evaluation_picture([TRAINED], on(60, "ascii"))]
    golden("evaluation", stacked(parts).plain)


@pytest.mark.parametrize("kind", SURFACES)
@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_every_place_has_a_cell_and_no_line_is_too_wide(width: int, kind: str) -> None:
    for results in ([TRAINED], [TRAINED, LONGER], [LONGER, LONGER, TRAINED]):
        picture = places_picture(results, on(width, kind))
        assert picture.columns <= width
        assert places_picture(results, on(width, kind)).plain == picture.plain


def test_places_count_from_the_start_only_where_all_rows_are_scored_at_the_same_places() -> None:
    def ticks(*results: Evaluation) -> str:
        return places_picture(results, on(80, "none"))[1 + len(results)].plain.split()[0]

    assert ticks(TRAINED) == "6" and ticks(LONGER) == "24"
    assert ticks(TRAINED, LONGER) == "0"
    assert ticks(made({}, 6, [1.0, 0.5, 0.2], 1, shift=3)) == "0"
