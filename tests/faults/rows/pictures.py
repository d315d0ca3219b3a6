"""Every renderer, drawing records of any shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from mhsa_cli.records import bench as b
from mhsa_cli.records.check import Grade, Law, NamedFault, Note
from mhsa_cli.records.claims import Status
from mhsa_cli.records.heads import HeadMaps, HeadScore, Matching, Untested
from mhsa_cli.records.timeline import Interval, LossDrop
from mhsa_cli.records.verify import Check, Verification
from mhsa_cli.renderers.kit import table
from mhsa_cli.renderers.kit.text_lines import Lines, stacked
from mhsa_cli.renderers.kit.ticks import short
from mhsa_cli.renderers.pictures import (
    bench,
    check,
    circuits,
    compare,
    curve,
    explain,
    fitted_maps,
    heads,
    heatmap,
    replay,
    small_multiples,
    sweep,
    task,
    timeline,
    trace,
    verify,
)
from tests.faults.rows import drawn_records as drawn
from tests.faults.rows.drawn_records import Made


def benched(m: Made, surface: Any) -> Lines:
    """Draw every section of a bench."""
    size = {"batch_size": m.count(), "seq_len": 4, "d_model": m.count(), "n_heads": 1, "n_layers": 1, "d_mlp": 0}

    def spread() -> tuple[float, float, float]:
        return tuple(sorted(abs(m.number()) for _ in range(3)))  # type: ignore[return-value]

    def fast() -> float:
        return m.seen(abs(m.number()))

    sections: list[list[Any]] = [
        [b.Machine(m.text("cpu"), m.count(), "cpu", m.maybe(m.text("gpu")), "2.13", m.count())],
        [b.StepSpeed(m.text("config"), size, m.count(), m.count(), spread(), fast(), abs(m.number()), True)],
        [b.StackSpeed(m.count(), spread(), fast()), b.NotMeasured("stacks", m.text("64 models"), m.text("9 GB"))],
        [b.AttentionSpeed(path, m.count(), spread(), m.maybe(abs(m.number()))) for path in ("fused", "weights")],
        [b.ImportSpeed(spread())],
    ]
    parts = [bench.bench_section(section, surface) for section in sections]
    return stacked(parts)


def compared(m: Made, surface: Any) -> Lines:
    """Draw a comparison of two runs."""
    names = (m.text("copy-h4"), m.text("copy-h8"))
    first, second = ({m.text("n_heads"): m.count(), "lr": m.number(), "path": m.text("p")} for _ in range(2))
    pairs = [(place, place, m.share()) for place in m.places]
    status, reason = m.draw.choice(list(Status)), m.maybe(m.draw.choice(list(Untested)))
    test = status, m.maybe(m.share()), m.maybe(m.share()), m.count(), reason
    matching = Matching(pairs, [(0, 9)], [(1, 9)], m.share(), m.text("32 rows"), *test)
    labels = ({place: m.text("offset 6") for place in m.places}, {(0, 0): m.text("itself")})
    final = [["eval loss", short(m.number(spot=True)), short(m.number(spot=True))]]
    return stacked(
        [
            compare.differing_settings(first, second, names, surface),
            compare.beside("final", final, names, surface),
            compare.matched_heads(matching, labels, names, surface),
            compare.unmatched(m.text("they have no heads"), surface),
        ]
    )


def grade(m: Made) -> Grade:
    """Make a grade of any verdict."""
    size = 0 if m.shape == "nothing" else m.draw.randint(0, 3)
    passed, edge = m.draw.choice([True, False, None]), m.draw.random() < 0.3
    law = [Law(m.text("rows sum to one"), passed, m.maybe(m.number()), m.text("at row 3"), edge) for _ in range(size)]
    fault = [
        NamedFault(
            "scale_none", m.text("no"), m.text("q / 3"), 3, m.text("line 3"), m.maybe(m.number()), m.text("no scale")
        )
        for _ in range(size)
    ]
    texts = [Note("call", m.text("module(x): TypeError")) for _ in range(size)]
    found = {m.text("called"): m.text("module(x)")}
    verdict = m.draw.choice(["right", "wrong", "uncallable"])
    return Grade(f"{m.text('a/b.py')}:{m.text('A')}", verdict, found, law, fault, texts, texts, abs(m.number()))


def listed(m: Made, surface: Any) -> Lines:
    """Draw a table with columns of every kind."""
    columns = [table.Column("run", itemgetter(0), whole=True), table.Column("said", itemgetter(1), wraps=True)]
    columns += [table.Column("loss", itemgetter(2), "right"), table.Column("kind", itemgetter(3), wraps=True)]
    columns += [table.Column("x", itemgetter(4), "right", drop=place) for place in (3, 2, 1)]
    rows = [
        [m.text(f"run{n}"), m.text("a b c d"), short(m.number(spot=n == 0)), m.text("k"), str(m.count())]
        for n in range(9)
    ]
    return table.table(columns, rows, surface)


def looked(f: Callable[..., Lines], spots: Callable[[HeadScore], list[float]]) -> Callable[..., Lines]:
    """Draw something of a head report; `spots` are a head's figures that must be shown."""

    def draw(m: Made, surface: Any) -> Lines:
        report = drawn.report_maps(m).report
        assert report is not None
        m.spots = [figure for head in report.heads for figure in spots(head)] if m.shape == "ordinary" else []
        return f(report, surface)

    return draw


def head_table(m: Made, surface: Any) -> Lines:
    """Draw the table of heads."""
    found = drawn.report_maps(m)
    assert found.report is not None
    m.spots = [head.scores["previous"].mass for head in found.report.heads] if m.shape == "ordinary" else []
    return heads.head_table(found, surface)


def sentences(maps: HeadMaps) -> list[str]:
    """Write the paragraphs of `mhsa explain`."""
    if maps.report is None:
        return []
    report = maps.report
    return [explain.explain_model(report), explain.explain_teamwork(report), *map(explain.explain_head, report.heads)]


def lines(texts: Sequence[str], width: int) -> Lines:
    """Set sentences as a terminal does."""
    from mhsa_cli.renderers.kit.palette import PLAIN
    from mhsa_cli.renderers.kit.text_lines import wrap_phrases
    from mhsa_cli.text import escape

    return Lines([row for text in texts for row in wrap_phrases([[(escape(text), PLAIN)]], width)])


def small_maps(m: Made, surface: Any) -> Lines:
    """Draw maps in few rows; in full where not one head fits there."""
    maps = drawn.report_maps(m)
    found = fitted_maps.captioned_maps(maps, surface, 20, "mhsa inspect-heads")
    return heatmap.head_maps(maps, surface) if found is None else found[1]


RENDERERS: dict[str, Callable[[Made, Any], Lines]] = {
    "curve": lambda m, s: curve.loss_curve(drawn.looks(m, "one"), s, levels=drawn.guess(m)),
    "log curve": lambda m, s: curve.loss_curve(drawn.looks(m, "many"), s, log=True, height=m.length),
    "timeline": lambda m, s: timeline.timeline_picture(
        drawn.looks(m, "one"),
        [drawn.history(m, *place) for place in m.places],
        s,
        levels=drawn.guess(m),
        drop=m.maybe(LossDrop(m.count(), m.number(), Interval(0, m.count()))),
        in_context=[(step, m.maybe(m.number())) for step in m.steps()],
        target=m.draw.choice([None, "previous"]),
    ),  # fmt: skip
    "multiples": lambda m, s: small_multiples.small_multiples(drawn.curves(m, 0 if m.shape == "nothing" else 5), s),
    "maps": lambda m, s: heatmap.head_maps(drawn.report_maps(m), s),
    "frame": lambda m, s: replay.frame_picture((drawn.report_maps(m), m.maybe(m.number())), s, 9)[0],
    "small maps": small_maps,
    "head table": head_table,
    "scores": looked(heads.score_table, lambda head: [score.lift for score in head.scores.values()]),
    "gaps": looked(heads.gap_table, lambda head: [*head.trained_gaps.values(), *head.unseen_gaps.values()]),
    "ablations": lambda m, s: heads.ablation_table(drawn.ablated(m), s),
    "head lines": looked(lambda report, s: explain.head_lines(report.heads, s.width), lambda head: []),
    "sentences": lambda m, s: lines(sentences(drawn.report_maps(m)), s.width),
    "circuits": lambda m, s: circuits.circuits_table(drawn.circuit(m), s),
    "comparison": compared,
    "sweep": lambda m, s: sweep.sweep_table(drawn.swept(m), s),
    "trace": lambda m, s: trace.trace_picture(drawn.traced(m), s),
    "task": lambda m, s: task.task_picture(drawn.shown_task(m), s),
    "bench": benched,
    "table": listed,
    "grade": lambda m, s: check.grade_picture(grade(m), s),
    "grades": lambda m, s: check.grades_table([grade(m) for _ in range(5)], s),
    "verification": lambda m, s: verify.verification_table(
        Verification([Check(m.text("config.yaml"), state, m.text("as listed")) for state in ("ok", "wrong")], [], None),
        s,
    ),  # fmt: skip
}
