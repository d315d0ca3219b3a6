"""Records of ten shapes, good and hostile."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

from mhsa_cli.records.circuits import Circuits, Composition, HeadCircuits
from mhsa_cli.records.claims import Claim, Status, stored
from mhsa_cli.records.heads import (
    Ablation,
    HeadMaps,
    HeadReport,
    HeadScore,
    HeadSummary,
    TargetScore,
    Verdict,
)
from mhsa_cli.records.labels import Extent, Label, Role
from mhsa_cli.records.sweep import FormedStats, GroupStats, Median, PairStats, SweepReport, TrialResult
from mhsa_cli.records.timeline import HeadHistory, Interval
from mhsa_cli.records.trace import Trace, TraceCache, TraceCheck, TracePart, TraceStep
from mhsa_cli.records.training import Series, TaskInfo
from mhsa_cli.renderers.pictures.curve import Level

EFFECTS = [f"{way}_delta_{part}" for way in ("uniform", "zero", "mean", "resample") for part in ("nats", "se")]
EFFECTS += ["shapley_nats", "shapley_se", "share", "share_se", "kept", "kept_se"]
SHAPES = ["ordinary", "one", "nothing", "NaN", "infinite", "huge", "tiny", "wide", "odd text", "long"]
SIZES = {"one": (1, 1, 1), "wide": (2, 9, 66), "long": (3, 5, 9)}  # layers, heads, tokens; of the others (1, 3, 7)
ODD = [
    "[red]x[/]",
    "[/]",
    ":smile:",
    "\x1b[31m\r\n\t",
    "漢字かな",
    "e\u0301\u0302",
    "\u202eabc",
    "caf\udce9",
    "👩‍👩‍👧",
    "\0",
    "%s{}",
]


class Made:
    """Everything a picture may be made of, of one shape."""

    def __init__(self, shape: str, seed: int) -> None:
        self.shape, self.draw = shape, random.Random(f"{shape} {seed}")
        self.layers, self.heads, self.length = SIZES.get(shape, (1, 3, 7))
        self.spots: list[float] = []  # figures that a wide enough picture must show
        self.places = [(layer, head) for layer in range(self.layers) for head in range(self.heads)]

    def number(self, spot: bool = False) -> float:
        """Give a figure."""
        odd = {
            "NaN": [math.nan],
            "infinite": [math.inf, -math.inf, 1.5],
            "huge": [1e308, -1e300, 5e30, 123456789012.0],
            "tiny": [5e-324, -1e-300, 1e-12, 0.0],
        }
        found = self.draw.choice(odd[self.shape]) if self.shape in odd else round(self.draw.uniform(0.01, 9.9), 4)
        return self.seen(found) if spot else found

    def seen(self, number: float) -> float:
        """Note a figure that must be shown."""
        if self.shape == "ordinary":
            self.spots.append(number)
        return number

    def share(self) -> float:
        """Give a number that should lie in 0..1."""
        return self.number() if self.shape in ("NaN", "infinite", "huge", "tiny") else round(self.draw.random(), 4)

    def maybe(self, item: Any) -> Any:
        """Give it, or None where nothing is known."""
        return None if self.shape == "nothing" or (self.shape == "infinite" and self.draw.random() < 0.3) else item

    def count(self) -> int:
        """Give a whole number."""
        return {"huge": 10**9, "one": 1, "nothing": 0}.get(self.shape, self.draw.randint(2, 900))

    def text(self, usual: str) -> str:
        """Give a name."""
        if self.shape == "odd text":
            return self.draw.choice(ODD) + usual
        return {"nothing": "", "long": usual + " and so on" * 14 + "x" * 120}.get(self.shape, usual)

    def steps(self) -> list[int]:
        """Give the steps of a curve."""
        size = {"one": 1, "nothing": 0, "wide": 900, "long": 300}.get(self.shape, 40)
        return [step * (10**7 if self.shape == "huge" else 1) for step in range(1, size + 1)]

    def numbers(self, size: int) -> list[float | None]:
        """Give a row of figures, gaps among them."""
        return [self.maybe(self.number()) for _ in range(size)]

    def series(self, name: str, role: str = "train") -> Series:
        """Give a line of a curve; its last figure must be shown."""
        steps, values = self.steps(), self.numbers(len(self.steps()))
        if values and self.shape == "ordinary":
            values[-1] = self.number(spot=True)
        return Series(self.text(name), steps, values, role)

    def quartiles(self, whole: bool = False) -> Any:
        """Give three figures in order, the middle one to be shown."""
        draw = self.count if whole and self.shape == "ordinary" else self.number
        three = sorted(draw() for _ in range(3))
        self.seen(three[1])
        return tuple(self.maybe(one) for one in three)

    def median(self, whole: bool = False) -> Median:
        """Give a median with its interval."""
        low, middle, high = self.quartiles(whole)
        return Median(middle, low, high, 6)


def maps(m: Made) -> HeadMaps:
    """Make maps with a report."""
    weights, summaries, scores = [], [], []
    for _ in range(m.layers):
        weights.append([[[m.share() if k <= q else 0.0 for k in range(m.length)] for q in range(m.length)]
                        for _ in range(m.heads)])  # fmt: skip
    for layer, head in m.places:
        summaries.append(HeadSummary(layer, head, m.maybe(m.share()), m.maybe(m.share()), m.maybe(m.share())))
        scores.append(score(m, layer, head))
    verdict = Verdict(
        m.draw.choice([True, False, None]), m.maybe(m.number()), m.maybe(m.number()), m.maybe(m.number()),
        [stored(m.text("The pattern matters."))], m.text("64 rows"), m.maybe("copy"), m.maybe(m.share()),
        m.maybe(m.share()), stored(m.text("too small")),
    )  # fmt: skip
    tokens = [m.text(str(7 * n % 64)) for n in range(m.length)]
    return HeadMaps(m.count(), m.text("copy"), tokens, weights, summaries, m.text(""), HeadReport(verdict, scores))


def score(m: Made, layer: int, head: int) -> HeadScore:
    """Make the measurements of one head."""
    targets = {}
    for name in ("previous", "offset", "induction"):
        distance = m.count() if name == "offset" else None
        targets[name] = TargetScore(m.share(), m.share(), m.share(), distance, m.maybe(m.share()))
    gaps = [{gap: m.share() for gap in gaps} for gaps in ((5, 7), (2, 4), (2,))]
    effects = {name: m.maybe(m.number()) for name in EFFECTS}
    role = m.draw.choice([*Role, None])
    label = m.maybe(Label("previous", role or Role.PATTERN, extent=m.maybe(m.draw.choice([*Extent]))))
    name, figures = f"L{layer}.H{head}", (m.number(), m.maybe(m.number()), m.maybe(m.number()))
    evidence = [stored(m.text("lift 0.93")), *(Claim(name, "effect", *figures, status) for status in Status)]
    return HeadScore(
        layer, head, targets, *(m.maybe(m.share()) for _ in range(4)), *gaps,
        **effects, role=role, label=label, evidence=evidence,
    )  # fmt: skip


def history(m: Made, layer: int, head: int) -> HeadHistory:
    """Make one head's history."""
    steps = m.steps()[:: 1 + len(m.steps()) // 18]
    lifts = [m.maybe(m.share()) for _ in steps]
    onset, rise, lead = (m.maybe(Interval(*sorted((m.count(), m.count())))) for _ in range(3))
    figures = [m.maybe(m.share()), onset, rise, m.maybe(m.count()), lead, m.maybe(m.count())]
    return HeadHistory(layer, head, "offset", m.text("offset 6"), steps, lifts, *figures)


def swept(m: Made) -> SweepReport:
    """Make a sweep's report."""
    key = m.text("n_heads")
    groups = [
        GroupStats({key: m.text(str(2**i))}, 3, 2, 3, (m.share(), m.share()), m.median(whole=True), m.count(),
                     m.median(), [([Label("offset", Role.SHOWN, 6)], 2)],
                     [FormedStats(Label("induction", Role.SHOWN), m.count(), m.count(), m.median(whole=True), i == 0)])
        for i in range(4 if m.shape == "long" else 2)
    ]  # fmt: skip
    found = [Median(m.maybe(m.number()), m.maybe(m.number()), m.maybe(m.number()), m.count()) for _ in Status]
    pairs = [
        PairStats(0, 1, key, measure, m.share(), m.share(), status, middle, m.maybe(m.number()))
        for measure, status, middle in zip(("steps", "loss", "steps", "loss"), Status, found, strict=True)
    ]
    counts = (m.count(), m.count()), (m.count(), m.count())
    pairs.append(PairStats(0, 1, key, "success", m.share(), m.share(), Status.NOT_SHOWN, counts=counts))
    failed = TrialResult(m.text("s/a"), 1, 4, "failed", None, None, None, None, [], m.text("NaN"))
    return SweepReport(groups, pairs, [failed], m.share())


def traced(m: Made) -> Trace:
    """Make a trace."""
    steps = [
        TraceStep(part, layer, m.text(name), m.text("@"), ["B", "T", m.text("D")], [m.count()] * 3, data,
                    [m.count()] * 3, "float32", m.count(), m.count(), m.maybe(m.number()), m.maybe(m.number()))
        for part, layer, name, data in (("embedding", None, "x", "input"), ("attention", 0, "q", "view"),
                                        ("attention", 0, "s", "copy"), ("attention", 1, "q", "new"),
                                        ("head", None, "logits", "new"))
    ]  # fmt: skip
    checks = [TraceCheck("causal", passed, m.number()) for passed in (True, False)]
    parts = [TracePart(m.text("head"), m.count(), m.maybe(m.number()))]
    cache_ = TraceCache(m.draw.random() < 0.5, m.count(), m.count(), m.count(), m.count())
    return Trace(m.text("copy"), "softmax", "rope", m.count(), 2, {"B": m.count()}, steps, m.count(), m.count(),
                   m.number(spot=True), checks, parts, m.count(), m.count(), m.text("4*D*D"), cache_)  # fmt: skip


def circuit(m: Made) -> Circuits:
    """Make the circuits of every head."""
    shares = {"tok-tok": m.share(), "pos-pos": m.share(), "bias-tok": m.share()}
    found = [
        HeadCircuits(*place, m.maybe(shares), *(m.maybe(m.seen(m.share())) for _ in range(4))) for place in m.places
    ]
    pairs = [Composition((0, i), (1, j), m.share(), m.share(), m.share()) for i in range(3) for j in range(2)]
    notes = [stored(m.text("No shares."))]
    limits = [m.maybe(m.share()) for _ in range(3)]
    return Circuits(m.count(), found, pairs, m.maybe(m.number()), m.text("64 rows"), notes, *limits)


def curves(m: Made, count: int) -> list[Any]:
    """Make panels: a median between quartiles."""
    return [(m.text(f"h={n}"), m.steps(), *(m.numbers(len(m.steps())) for _ in range(3))) for n in range(count)]


def ablated(m: Made) -> list[Ablation]:
    """Make the table of one set of heads acted on."""
    return [Ablation(way, m.number(spot=True), m.share(), m.number(), m.number()) for way in ("none", "uniform", "?")]


def shown_task(m: Made) -> TaskInfo:
    """Make a task's two rows."""
    rows = [[m.text(str(n)) for n in range(m.length)] for _ in range(2)]
    chance, baselines = (m.number(spot=True), m.share()), {m.text("any"): m.number()}
    return TaskInfo(m.text("copy"), m.text("a prefix again"), *rows, *chance, baselines)


def report_maps(m: Made) -> HeadMaps:
    """Make maps, once for all shapes that never differ."""
    return maps(m) if m.shape == "ordinary" else _kept_maps(m.shape)


@cache
def _kept_maps(shape: str) -> HeadMaps:
    return maps(Made(shape, 0))


def looks(m: Made, name: str) -> list[Series]:
    """Make a curve's lines: two of a run, or many runs."""
    if name == "one":
        return [m.series("train"), m.series("eval", "eval")]
    return [m.series(f"run {n}", ("train", "eval")[n % 2]) for n in range(30 if m.shape == "long" else 4)]


def guess(m: Made) -> list[Level]:
    """Give the level of chance, or none."""
    found = m.maybe(Level(m.number(), m.text("chance")))
    return [] if found is None else [found]
