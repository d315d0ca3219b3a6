"""What the differences of a sweep show, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from mhsa_cli.records.claims import Status
from mhsa_cli.records.sweep import LEAST_PAIRS, Difference, Measure, PairStats, SweepReport
from mhsa_cli.text import plural

NO_DIFFERENCE = "no difference that this number of seeds could show"
ONE_SEED = "one seed shows nothing about spread"
# Keys whose values are counted things: "8 heads" reads better than "model.n_heads=8".
NOUNS = {
    "model.n_heads": "head",
    "model.n_kv_heads": "key-value head",
    "model.n_layers": "layer",
    "train.epochs": "epoch",
}


def pair_words(report: SweepReport, pair: PairStats) -> str:
    """Say what two groups of a sweep differ in, in one sentence with the number of seeds."""
    first, second = (report.groups[cell].overrides for cell in (pair.first, pair.second))
    other, own = _things(pair.key, first), _things(pair.key, second)
    several = _noun(pair.key, second) and second[pair.key] != "1"
    is_steps, to_goal = pair.measure == "steps", f" to {100 * report.goal:.4g} % accuracy"
    found = difference_words(pair.difference, pair.measure)
    if pair.difference.status is Status.SHOWN:
        verb = f"{'need' if is_steps else 'end'}{'' if several else 's'}"
        said = f"{own} {verb} {found}{to_goal if is_steps else ''} than {other}"
    else:
        said = f"{own} against {other}, {f'steps{to_goal}' if is_steps else 'final loss'}: {found}"
    at = " ".join(f"{name}={text}" for name, text in first.items() if name != pair.key)
    return f"{f'at {at}: ' if at else ''}{said} ({_counted(pair)})"


def _things(key: str, overrides: Mapping[str, str]) -> str:
    value, noun = overrides[key], _noun(key, overrides)
    return f"{value} {noun}{'s' if value != '1' else ''}" if noun else f"{key}={value}"


def _noun(key: str, overrides: Mapping[str, str]) -> str:
    return NOUNS.get(key, "") if overrides[key].isdecimal() else ""


def _counted(pair: PairStats) -> str:
    parts = [plural(pair.difference.n, "seed")]
    if pair.unfinished:
        parts.append(f"{pair.unfinished} left out: a trial did not finish")
    if pair.unreached:
        why = "a run never got there" if pair.measure == "steps" else "a loss is not finite"
        parts.append(f"{pair.unreached} left out: {why}")
    return "; ".join(parts)


def difference_words(difference: Difference, measure: Measure) -> str:
    """Say a difference plainly: "34 to 60 fewer steps", or that the seeds could not show one."""
    low, high, n = difference.low, difference.high, difference.n
    if n == 0:
        return "no seed to compare"
    if n == 1:
        return ONE_SEED
    if low is None or high is None:
        return f"{n} seeds are too few to show a difference, {LEAST_PAIRS} could"
    if low <= 0 <= high:
        return NO_DIFFERENCE
    near, far = sorted((_number(abs(low)), _number(abs(high))), key=float)
    span = f"{near} to {far}" if near != far else f"about {near}"
    less = high < 0
    if measure == "steps":
        return f"{span} {'fewer' if less else 'more'} steps"
    return f"{span} nats {'lower' if less else 'higher'}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
