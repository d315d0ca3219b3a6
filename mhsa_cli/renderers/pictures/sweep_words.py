"""Sentences about the differences between the groups of a sweep."""

from __future__ import annotations

from collections.abc import Mapping

from mhsa_cli.records.claims import Status
from mhsa_cli.records.sweep import LEAST_PAIRS, Difference, GroupStats, Measure, PairStats, SweepReport
from mhsa_cli.text import plural

NO_DIFFERENCE = "no difference shown"
ONE_SEED = "one seed gives no estimate of the spread"
# Keys whose values are counts: "8 heads" reads better than "n_heads=8".
NOUNS = {
    "model.n_heads": "head",
    "model.n_kv_heads": "key-value head",
    "model.n_layers": "layer",
    "train.epochs": "epoch",
}


def short_names(report: SweepReport) -> dict[str, str]:
    """Name the varied settings without their section, unless two would have the same name."""
    keys = list(dict.fromkeys(key for group in report.groups for key in group.overrides))
    ends = [key.rpartition(".")[2] for key in keys]
    return {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}


def group_name(report: SweepReport, group: GroupStats) -> str:
    """Name a group by its settings: `n_heads=2 lr=0.01`."""
    names = short_names(report)
    return " ".join(f"{names[key]}={text}" for key, text in group.overrides.items())


def goal_text(report: SweepReport) -> str:
    """Write the goal: 90%, 87.5%."""
    return f"{100 * report.goal:.4g}%"


def pair_words(report: SweepReport, pair: PairStats) -> str:
    """Write how two groups of a sweep differ, in one sentence with the number of seeds."""
    names = short_names(report)
    first, second = (report.groups[cell].overrides for cell in (pair.first, pair.second))
    name = names[pair.key]
    other, own = _things(pair.key, name, first), _things(pair.key, name, second)
    several = _noun(pair.key, second) and second[pair.key] != "1"
    is_steps, to_goal = pair.measure == "steps", f" to {goal_text(report)} accuracy"
    found = difference_words(pair.difference, pair.measure)
    if pair.difference.status is Status.SHOWN:
        verb = f"{'need' if is_steps else 'end'}{'' if several else 's'}"
        said = f"{own} {verb} {found}{to_goal if is_steps else ''} than {other}"
    else:
        said = f"{own} vs. {other}, {f'steps{to_goal}' if is_steps else 'final loss'}: {found}"
    at = " ".join(f"{names[key]}={text}" for key, text in first.items() if key != pair.key)
    return f"{f'at {at}: ' if at else ''}{said} ({_counted(pair)})"


def _things(key: str, name: str, overrides: Mapping[str, str]) -> str:
    value, noun = overrides[key], _noun(key, overrides)
    return f"{value} {noun}{'s' if value != '1' else ''}" if noun else f"{name}={value}"


def _noun(key: str, overrides: Mapping[str, str]) -> str:
    return NOUNS.get(key, "") if overrides[key].isdecimal() else ""


def _counted(pair: PairStats) -> str:
    parts = [plural(pair.difference.n, "seed")]
    if pair.unfinished:
        parts.append(f"{pair.unfinished} excluded: unfinished trial")
    if pair.unreached:
        why = "goal not reached" if pair.measure == "steps" else "loss not finite"
        parts.append(f"{pair.unreached} excluded: {why}")
    return "; ".join(parts)


def difference_words(difference: Difference, measure: Measure) -> str:
    """Write a difference: "34 to 60 fewer steps", its interval where none is shown, or why there is none."""
    low, high, n = difference.low, difference.high, difference.n
    if n == 0:
        return "no seed to compare"
    if n == 1:
        return ONE_SEED
    if low is None or high is None:
        return f"{n} seeds are too few, {LEAST_PAIRS} are needed"
    unit = "steps" if measure == "steps" else "nats"
    if low <= 0 <= high:
        return f"{NO_DIFFERENCE}, {_signed(low)} to {_signed(high)} {unit}"
    near, far = sorted((_number(abs(low)), _number(abs(high))), key=float)
    span = f"{near} to {far}" if near != far else f"about {near}"
    if measure == "steps":
        return f"{span} {'fewer' if high < 0 else 'more'} steps"
    return f"{span} nats {'lower' if high < 0 else 'higher'}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+' if value > 0 else ''}{_number(abs(value))}"
