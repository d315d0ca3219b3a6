from __future__ import annotations

from dataclasses import replace

import pytest

from mhsa_cli.core.power import seed_power
from mhsa_cli.records.sweep import SeedPower, SweepPlan, SweepTime
from mhsa_cli.renderers.pictures.sweep_plan import about, plan_lines, too_few
from tests.renderers.drawn import SURFACES, golden, on

MIB = 2**20
POWER = SeedPower(8, 7, 21, 10, 6, 1, 0.0)
PLAN = SweepPlan(8, 0, 8, 64, 1, 8, 392 * MIB, 22_600 * MIB, 21 * MIB, 74_500 * MIB, SweepTime(38.4, 8, 5), POWER)
MANY = replace(PLAN, skipped=1, seeds=64, trials=512, processes=2, power=SeedPower(64, 7, 21, 10, 6, 54, 0.96))
AWAY = replace(PLAN, settings=1, trials=8, processes=None, memory_free=None, time=None, power=None)


def power_of(settings: int, seeds: int) -> SeedPower | None:
    return seed_power([{"model.n_heads": str(number)} for number in range(settings)], seeds)


@pytest.mark.parametrize("width", [60, 80])
def test_plans_stay_as_they_were(width: int) -> None:
    parts = [plan_lines(plan, on(width)).plain for plan in (PLAN, MANY, AWAY)]
    golden(f"sweep-plan-{width}", "\n\n".join(parts))


@pytest.mark.parametrize("surface", sorted(SURFACES))
@pytest.mark.parametrize("width", [20, 33, 60])
def test_a_plan_keeps_within_its_width(width: int, surface: str) -> None:
    for plan in (PLAN, MANY, AWAY):
        lines = plan_lines(plan, on(width, surface))
        assert all(line.cell_len <= width for line in lines)
        assert surface != "ascii" or all(line.plain.isascii() for line in lines)


def test_times_are_rounded_as_they_are_known() -> None:
    texts = {0.2: "1 s", 12.4: "12 s", 38.4: "40 s", 89: "90 s", 91: "2 min", 3000: "50 min", 9000: "2.5 h"}
    assert {seconds: about(seconds) for seconds in texts} == texts
    assert about(400_000) == "111 h"


def test_the_golden_plans_hold_what_their_seeds_can_show() -> None:
    for plan in (PLAN, MANY):
        found = power_of(plan.settings, plan.seeds)
        assert found is not None and plan.power is not None and found == replace(plan.power, power=None)


def test_seeds_are_called_too_few_as_long_as_a_figure_cannot_be_shown() -> None:
    least = {"8 seeds": 10, "10 seeds": None}
    assert {text: too_few(power_of(8, int(text.split()[0]))) is None for text in least} == {
        text: number is None for text, number in least.items()
    }
    assert "10" in str(too_few(power_of(8, 8))).split()  # success can be shown, steps and loss not
    assert {"6", "10"} <= {word.strip(",;") for word in str(too_few(power_of(8, 3))).split()}
    assert too_few(None) is None
