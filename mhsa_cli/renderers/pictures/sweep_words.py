"""Sentences about the differences between the groups of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mhsa_cli.records.claims import Status
from mhsa_cli.records.labels import Label
from mhsa_cli.records.sweep import LEAST_VALUES, FormedStats, GroupStats, PairStats, SweepReport, least_for_ranks
from mhsa_cli.text import plural

NO_DIFFERENCE = "no difference shown"
PENDING = "not compared before all trials have a result"
ONE_SEED = "one seed gives no estimate of the spread"
CIRCUITS = {"induction": "previous token + induction (circuit)"}
# Keys whose values are counts: "8 heads" reads better than "n_heads=8".
NOUNS = {
    "model.n_heads": "head",
    "model.n_kv_heads": "key-value head",
    "model.n_layers": "layer",
    "train.epochs": "epoch",
}


def needed(least: int) -> str:
    """Write how many seeds an interval takes, and how many (`least`) a difference in steps or loss that is shown."""
    return f"an interval needs {LEAST_VALUES} seeds, a difference {least}"


def needed_for(report: SweepReport) -> str:
    """Write `needed` of all comparisons of a report."""
    return needed(least_for_ranks(len(report.pairs)))


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


def formed_words(formed: FormedStats) -> str:
    """Name what formed over training: a label, a circuit, or the drop of the loss."""
    if formed.label is None:
        return "largest drop of the loss"
    return circuit_words(formed.label) if formed.is_circuit else formed.label.text


def circuit_words(label: Label) -> str:
    """Name the circuit whose last heads have this label."""
    return CIRCUITS.get(label.kind, label.text)


def pair_words(report: SweepReport, pair: PairStats) -> str:
    """Write how two groups of a sweep differ, in one sentence with the number of seeds."""
    names = short_names(report)
    first, second = (report.groups[cell].overrides for cell in (pair.first, pair.second))
    other, own = (_things(pair.key, names[pair.key], group) for group in (first, second))
    verb = "" if _noun(pair.key, second) and second[pair.key] != "1" else "s"
    more = "more" if pair.status is Status.SHOWN else "less"
    if not pair.is_shown:
        figure = {"steps": f"steps{_to_goal(report)}", "loss": "final loss", "success": "success"}[pair.measure]
        said = f"{own} vs. {other}, {figure}: {_not_shown(report, pair)}"
    elif _diverges(pair):
        said = f"most runs with {own if pair.status is Status.SHOWN else other} diverge"
    elif pair.measure == "success":
        said = f"{own} succeed{verb} {more} often than {other}: {_shares(pair)}"
    elif pair.measure == "steps":
        said = f"{own} need{verb} {_amount(pair)}{_to_goal(report)} than {other}"
    else:
        said = f"{own} end{verb} {_amount(pair)} than {other}"
    at = " ".join(f"{names[key]}={text}" for key, text in first.items() if key != pair.key)
    return f"{f'at {at}: ' if at else ''}{said}{_counted(pair)}"


def _diverges(pair: PairStats) -> bool:
    """Whether a difference is that of runs which diverge from runs which do not."""
    found = pair.difference
    return found is not None and math.inf in (found.low, -(found.high or 0.0))


def _to_goal(report: SweepReport) -> str:
    return f" to {goal_text(report)} accuracy"


def _things(key: str, name: str, overrides: Mapping[str, str]) -> str:
    value, noun = overrides[key], _noun(key, overrides)
    return f"{value} {noun}{'s' if value != '1' else ''}" if noun else f"{name}={value}"


def _noun(key: str, overrides: Mapping[str, str]) -> str:
    return NOUNS.get(key, "") if overrides[key].isdecimal() else ""


def _counted(pair: PairStats) -> str:
    """Write the interval and the mean of a difference that is shown, and its number of seeds."""
    found = pair.difference
    if found is None:
        return ""
    parts = []
    if pair.is_shown and found.estimate is not None and math.isfinite(found.estimate):
        near, far = (found.low, found.high) if pair.status is Status.SHOWN else (found.high, found.low)
        beyond = "or more" if math.isinf(far or 0.0) else f"to {_number(abs(far or 0.0))}"
        parts.append(f"95% CI {_number(abs(near or 0.0))} {beyond}")
        if pair.mean is not None:  # in the direction of the sentence
            against = (pair.mean < 0) is (pair.status is Status.SHOWN) and pair.mean != 0
            parts.append(f"mean {'-' if against else ''}{_number(abs(pair.mean))}")
    parts.append(plural(found.n, "seed"))
    parts += [f"{pair.unfinished} without a result"] if pair.unfinished else []
    return f" ({'; '.join(parts)})"


def _shares(pair: PairStats) -> str:
    """Write how many seeds of both groups succeeded, the second group's first."""
    (k1, n1), (k2, n2) = pair.counts or ((0, 0), (0, 0))
    return f"{k2} of {n2} seeds vs. {k1} of {n1}"


def _amount(pair: PairStats) -> str:
    """Write the size of a difference: 14 more steps, at least 9 more steps, 0.5 nats lower."""
    found, sign = pair.difference, 1 if pair.status is Status.SHOWN else -1
    if found is None:
        return ""
    near = found.low if sign > 0 else found.high  # the end of the interval that is nearer to 0
    known = found.estimate is not None and math.isfinite(found.estimate)
    size = _number(abs(found.estimate or 0.0)) if known else f"at least {_number(abs(near or 0.0))}"
    if pair.measure == "steps":
        return f"{size} {'more' if sign > 0 else 'fewer'} steps"
    return f"{size} nats {'higher' if sign > 0 else 'lower'}"


def _not_shown(report: SweepReport, pair: PairStats) -> str:
    """Write what is known of a difference that is not shown, or why nothing is."""
    if pair.pending:
        return PENDING
    if pair.measure == "success":
        return f"{NO_DIFFERENCE}, {_shares(pair)}"
    found = pair.difference
    if found is None or found.n == 0:
        return "no seed to compare"
    if found.n == 1:
        return ONE_SEED
    if found.low is None or found.high is None:
        return f"{found.n} seeds are too few: {needed_for(report)}"
    if math.isinf(found.low) and math.isinf(found.high):
        return f"{NO_DIFFERENCE}, too few seeds {'reached the goal' if pair.measure == 'steps' else 'ended finite'}"
    alone = found.low > 0 or found.high < 0  # but not after the correction
    over = f" over all {compared(report)} comparisons" if alone else ""
    if math.isinf(found.low) or math.isinf(found.high):
        end = f"at most {_signed(found.high)}" if math.isinf(found.low) else f"at least {_signed(found.low)}"
    else:
        end = f"{_signed(found.low)} to {_signed(found.high)}"
    least = least_for_ranks(compared(report))
    few = f": {found.n} seeds can show none, {least} can" if found.n < least else ""
    return f"{NO_DIFFERENCE}{over}, {end} {'steps' if pair.measure == 'steps' else 'nats'}{few}"


def compared(report: SweepReport) -> int:
    """Count the comparisons that were made."""
    return sum(pair.status is not Status.NOT_MEASURED for pair in report.pairs)


def _number(value: float) -> str:
    return f"{value:.0f}" if 10 <= value < 1e6 else f"{value:.2g}"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+' if value > 0 else ''}{_number(abs(value))}"
