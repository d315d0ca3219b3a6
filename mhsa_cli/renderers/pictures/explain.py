"""What a model's heads do: the sentences about the model, a line for each head, and the figures behind each label."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from mhsa_cli.records.claim_words import target_words, words
from mhsa_cli.records.claims import Predicate, Status
from mhsa_cli.records.heads import HeadReport, HeadScore, LayerPart, LayerRole
from mhsa_cli.records.labels import CONDITIONAL, Extent, Role
from mhsa_cli.renderers.kit.palette import BOLD, PLAIN
from mhsa_cli.renderers.kit.text_lines import Lines, assemble, wrap_words
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.text import Head

WIDEST = 100
HEADLINES: tuple[Predicate, ...] = ("solved by", "works by")
TEAMWORK: tuple[Predicate, ...] = ("path", "singles and joint", "heads depend", "need each other", "back each other up")


def explain_model(report: HeadReport) -> str:
    """Write by which heads a task is solved, what their labels and attention are worth, and on which rows.

    The headline has a line of its own.
    """
    verdict = report.verdict
    first = [words(claim) for claim in verdict.claims if claim.predicate in HEADLINES]
    last = [words(claim) for claim in verdict.claims if claim.predicate == "rows trained on"]
    others = (*TEAMWORK, *HEADLINES, "rows trained on")
    rest = [words(claim) for claim in verdict.claims if claim.predicate not in others]
    rest += [f"Measured on {verdict.inputs}.", *last] if verdict.inputs else last
    return "\n".join([*first, " ".join(rest)])


def headline(report: HeadReport) -> str:
    """Write the first sentence about the model: which heads solve the task or, where that is not known, what is."""
    others = [claim for claim in report.verdict.claims if claim.predicate not in TEAMWORK]
    first = sorted(others, key=lambda claim: claim.predicate not in HEADLINES)
    return next(filter(None, map(words, first)), "")


LAYERS = {
    LayerRole.ENCODER: "encoder",
    LayerRole.DECODER: "decoder",
    LayerRole.CROSS: "cross-attention to the encoder",
}


def layer_names(parts: Sequence[LayerPart]) -> str:
    """Name the layers of an encoder-decoder: "L0 encoder, L1 decoder, L2 cross-attention to the encoder"."""
    return ", ".join(f"L{layer} {LAYERS[part.role]}" for layer, part in enumerate(parts))


def explain_teamwork(report: HeadReport) -> str:
    """Write how the heads share the work; "" where that is not known or there is one head."""
    verdict = report.verdict
    if len(report.heads) == 1:
        return ""
    said = [words(claim) for claim in verdict.claims if claim.predicate in TEAMWORK]
    if verdict.effective_heads is not None:
        said.append(f"Effective number of heads: {fixed(verdict.effective_heads, 1)} of {len(report.heads)} (Shapley).")
    elif verdict.withheld and verdict.withheld.predicate in ("not all measured", "negative shares"):
        said.append(f"Effective number of heads not given: {words(verdict.withheld)}.")
    return " ".join(said)


def by_worth(heads: Sequence[HeadScore]) -> list[HeadScore]:
    """Sort heads by the figure in their line; those with a shown effect come first, those without one last."""

    def key(head: HeadScore) -> tuple[int, float, Head]:
        rank = 0 if head.role in (Role.SHOWN, Role.REDUNDANT) else 2 if head.role in (Role.NO_EFFECT, None) else 1
        if rank == 0 and head.shapley_nats is not None:
            return rank, -head.shapley_nats, head.address
        return rank, -abs(head.uniform_delta_nats or 0.0), head.address

    return sorted(heads, key=key)


def by_importance(report: HeadReport) -> list[Head]:
    """List the heads, those of the headline first, then by worth."""
    groups = (claim.evidence.get("groups", {}) for claim in report.verdict.claims if claim.predicate in HEADLINES)
    named = {name for group in groups for names in group.values() for name in names}
    return [head.address for head in sorted(by_worth(report.heads), key=lambda head: head.name not in named)]


def head_lines(heads: Sequence[HeadScore], width: int) -> Lines:
    """Draw a line for each head, ordered by worth: what it attends to, and what that does."""
    lines, room = Lines(), max(len(head.name) for head in heads)
    for head in by_worth(heads):
        indent = " " * (room + 2)
        first, *more = wrap_words(head_line(head), min(width, WIDEST) - len(indent))
        line = assemble([(head.name.ljust(room), BOLD), (f"  {first}", PLAIN)])
        lines += Lines([line, *(Text(f"{indent}{rest}") for rest in more)])
    return lines


def head_line(head: HeadScore) -> str:
    """Write in one clause what a head attends to and what it does to the loss."""
    label = head.label
    if label is None:
        pattern = "not labelled"
    elif label.role is None:
        pattern = label.text
    else:
        target = head.scores.get(label.kind)
        where = " where there is one" if label.kind in CONDITIONAL else ""
        weight = "" if target is None else f" ({percents(target.mass, 0)} of its weight{where})"
        symbol = None if target is None else target.symbol
        name = "" if symbol in (None, str(label.token)) else f" ({symbol})"
        claims = [
            claim for claim in head.evidence if claim.predicate == "on the answer" and claim.evidence.get("shown")
        ]
        answer = claims and label.kind != "induction"  # which does, by definition
        pattern = f"{label.attends_to}{name}{', to the answer' if answer else ''}{weight}"
        also = [claim.evidence["target"] for claim in head.evidence if claim.predicate == "also attends"]
        pattern += "".join(f" and in part: {target_words(target)}" for target in also)
    return ": ".join(filter(None, (pattern, _cause(head))))


def _cause(head: HeadScore) -> str:
    delta = "" if head.uniform_delta_nats is None else f"{fixed(head.uniform_delta_nats, 3, '+')} nats when uniform"
    worth, shown = delta, any(one.predicate == "share" and one.status is Status.SHOWN for one in head.evidence)
    if shown and head.share is not None and head.share <= 1:
        worth = f"{percents(head.share, 0)} of what attention is worth"
    match head.role:
        case Role.SHOWN:
            extent = None if head.label is None else head.label.extent
            if extent is Extent.PARTLY:
                return f"{worth}, {percents(head.kept, 0)} of it by this pattern"
            return f"{worth}, but not by this pattern" if extent is Extent.ELSEWHERE else worth
        case Role.REDUNDANT:
            return "backup, an effect only with other heads uniform"
        case Role.HARMFUL:
            return f"harmful, {delta}"
        case Role.SUPPRESSES:
            return f"suppresses the answer, {delta}"
        case Role.CANCELS:
            return "cancelled by another head"
        case Role.OUTPUT:
            return "only its output matters"
        case Role.NO_EFFECT:
            return f"no effect shown, {delta}"
    return ""


def explain_head(head: HeadScore) -> str:
    """Write what one head attends to, the evidence, and its effect."""
    parts = [text for text in map(words, head.evidence) if text]  # a text of an older file may be empty
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in (f"{head.name}: {head_line(head)}", *parts))
