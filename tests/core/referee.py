"""What is said of a model's heads, held against what is known of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from unittest import mock

import torch
from torch import Tensor

from mhsa_cli.core.heads import probe
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks.base import IGNORE, Batch, fixed_batch
from mhsa_cli.records.heads import HeadReport
from mhsa_cli.records.labels import Label, Role
from tests.core.compiler import Program, ProgramTask, compiled

SEED = 3


def name_of(label: Label) -> str:
    """The label without its role: "previous", "offset:3"."""
    return ":".join(str(part) for part in (label.kind, *label.numbers.values()) if part is not None)


def measured(program: Program, rows: int = probe.ROWS) -> HeadReport:
    """Compile a program and measure it on its own task."""
    with mock.patch.object(probe, "ROWS", rows):
        return head_report(compiled(program), ProgramTask(program), SEED)


def false_statements(program: Program, report: HeadReport) -> list[str]:
    """List the labels and causes that are not true of a program's heads, in words for people."""
    found = []
    for head, known in zip(report.heads, program.heads, strict=True):
        label, about = head.label, f"{program.name}, {head.name}"
        truth = f"; true: {', '.join(known.labels) or 'no label'}; {', '.join(known.causes) or 'dead'}"
        if label is not None and label.names_effect and name_of(label) not in known.labels:
            found.append(f"{about}: label {label.id}{truth}")
        if label is not None and label.kind == "dead" and known.copies:
            found.append(f"{about}: label {label.id}{truth}")
        if head.role not in (None, Role.PATTERN, *known.causes):
            found.append(f"{about}: cause {head.role}{truth}")
        if any(claim.predicate == "sink" for claim in head.evidence) and not known.parks:
            found.append(f"{about}: sink{truth}")
    return found


def unnamed(program: Program, report: HeadReport) -> list[str]:
    """List the heads whose job is on the list of labels and that did not get such a label."""
    found = []
    for head, known in zip(report.heads, program.heads, strict=True):
        if known.labels and (head.label is None or name_of(head.label) not in known.labels or head.label.extent):
            found.append(
                f"{program.name}, {head.name}: {head.label and head.label.id}; true: {', '.join(known.labels)}"
            )
    return found


def false_teamwork(report: HeadReport, stage: Stage) -> list[str]:
    """List the heads that are said to need each other or to back each other up, and do not by their right answers.

    Heads need each other if each alone costs about what all of them cost; they back each other up if each alone may go
    and not all of them, or if they are copies by the table.
    """
    order, found = [head.name for head in report.heads], []
    for claim in report.verdict.claims:
        if claim.predicate not in ("need each other", "back each other up"):
            continue
        numbers = [order.index(name) for name in claim.evidence["heads"]]
        lost = [1 - stage.accuracy(dict.fromkeys(group, stage.uniform)) for group in zip(numbers, strict=True)]
        everyone = 1 - stage.accuracy(dict.fromkeys(numbers, stage.uniform))
        if claim.predicate == "need each other":
            true = min(lost) > 0.1 and everyone < max(lost) + 0.4 * min(lost)
        else:
            copies = [stage.program.heads[number] for number in numbers]
            twins = all(head.job is copies[0].job and Role.REDUNDANT in head.causes for head in copies)
            true = twins or (everyone > 0.1 and 2 * max(lost) < everyone)
        if not true:
            costs, names = (
                ", ".join(f"{share:.0%}" for share in (*lost, everyone)),
                " and ".join(claim.evidence["heads"]),
            )
            found.append(f"{stage.program.name}, {names}: {claim.predicate}; right answers lost: {costs}")
    return found


def false_headline(report: HeadReport, stage: Stage) -> list[str]:
    """List what a headline says that is not true.

    A head has another job, or does not suffice; the named heads alone do not do the work; a circuit is none.
    """
    found, known = [], dict(zip((head.name for head in report.heads), stage.program.heads, strict=True))
    order = list(known)
    for claim in report.verdict.claims:
        if claim.predicate not in ("solved by", "works by"):
            continue
        says = claim.evidence
        for label, group in says["groups"].items():
            told = Label.from_id(label)
            wrong = [name for name in group if told is None or name_of(told) not in known[name].labels]
            enough = []
            for name in group:
                others = {order.index(other): stage.uniform for other in group if other != name}
                enough.append(stage.accuracy(others) > 0.95)
            truth = "any" if all(enough) else "some" if any(enough) else "none"
            if wrong or (len(group) > 1 and says["suffice"][label] != truth):
                found.append(f"{stage.program.name}: headline, {label} of {group}: {says['suffice']}, true: {truth}")
        named = {order.index(name) for group in says["groups"].values() for name in group}
        others = stage.accuracy({number: stage.uniform for number in range(len(order)) if number not in named})
        if others < 0.8:
            found.append(f"{stage.program.name}: headline {says['groups']}, without other heads {others:.0%} right")
        circuit = any("induction" in head.labels for head in stage.program.heads)
        if (says["circuit"] == "induction") != circuit:
            found.append(f"{stage.program.name}: headline, circuit {says['circuit'] or None}")
    return found


# The keys of each label in plain Python; the names of a head are tried one by one


def ideal_keys(program: Program, name: str, row: Sequence[int], q: int) -> list[int]:
    """The keys that a label names for query q of a row."""
    kind, *numbers = name.split(":")
    seen, n = range(q + 1), [int(number) for number in numbers]
    match kind:
        case "previous":
            return [k for k in seen if k == q - 1]
        case "self":
            return [q] if q else []
        case "first":
            return [0] if q else []
        case "offset":
            return [k for k in seen if k == q - n[0]]
        case "modulo":
            return [k for k in seen if k <= q - n[0] and (q - k - n[0]) % n[1] == 0]
        case "duplicate":
            return [k for k in seen if k < q and row[k] == row[q]]
        case "same":
            return [k for k in seen if row[k] == row[q]]
        case "induction":
            return [k for k in seen if k and row[k - 1] == row[q]]
        case "separator":
            return [k for k in seen if row[k] == program.separator]
        case "token":
            return [k for k in seen if row[k] == n[0]]
    place = program.source(row, q) if program.source else None  # "answer"
    return [] if place is None else [k for k in seen if row[k] == row[place]]


def names(program: Program) -> list[str]:
    """Every label that a head of a program could have."""
    T = program.length
    fixed = ["previous", "self", "first", "duplicate", "same", "induction", "separator", "answer"]
    offsets = [f"offset:{d}" for d in range(2, T)]
    cycles = [f"modulo:{d}:{period}" for period in range(2, T // 2 + 1) for d in range(period)]
    return [*fixed, *offsets, *cycles, *(f"token:{i}" for i in range(program.vocab_size))]


@torch.no_grad()
def run(model: TransformerLM, ids: Tensor, given: Mapping[int, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the logits and all heads' weights; `given` replaces the weights of heads by number."""
    with ExitStack() as patches:
        first = 0
        for attn in model.attention:
            inner = {number - first: A for number, A in given.items() if first <= number < first + attn.n_heads}
            first += attn.n_heads

            def weights(*args: object, own=attn.weights, inner=inner) -> Tensor:  # type: ignore[no-untyped-def]
                found = own(*args).clone()
                for head, A in inner.items():
                    found[..., head, :, :] = A
                return found

            patches.enter_context(mock.patch.object(attn, "weights", weights))
        logits, found = model(ids, return_weights=True)
    return logits, torch.cat(found, 1)


def row_losses(model: TransformerLM, batch: Batch, given: Mapping[int, Tensor]) -> Tensor:
    """The mean loss of every row over its scored tokens, in nats."""
    log_p = run(model, batch.inputs, given)[0].double().log_softmax(-1)
    scored = batch.targets != IGNORE
    nats = -log_p.gather(-1, batch.targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (nats * scored).sum(-1) / scored.sum(-1)


def uniform_effects(model: TransformerLM, batch: Batch) -> list[tuple[float, float]]:
    """What uniform attention costs, with its standard error: in all heads, then in one at a time. Rows count alike."""
    T, everyone = batch.inputs.size(1), range(len(model.heads))
    uniform = torch.ones(T, T).tril() / torch.arange(1, T + 1).unsqueeze(1)
    clean, found = row_losses(model, batch, {}), []
    for group in (everyone, *([number] for number in everyone)):
        cost = row_losses(model, batch, dict.fromkeys(group, uniform)) - clean
        found.append((float(cost.mean()), float(cost.std() / len(cost) ** 0.5)))
    return found


class Stage:
    """A compiled program on some rows, whose heads can be given other weights."""

    def __init__(self, program: Program, rows: int) -> None:
        self.program, self.model = program, compiled(program)
        self.batch = fixed_batch(ProgramTask(program), SEED, "stage", rows)
        self.clean = run(self.model, self.batch.inputs, {})[1]
        T = program.length
        self.uniform = torch.ones(T, T).tril() / torch.arange(1, T + 1).unsqueeze(1)

    def accuracy(self, given: Mapping[int, Tensor]) -> float:
        """The share of right answers with the weights of some heads replaced."""
        scored = self.batch.targets != IGNORE
        return float(
            (run(self.model, self.batch.inputs, given)[0].argmax(-1) == self.batch.targets)[scored].double().mean()
        )

    def ideal(self, name: str) -> tuple[Tensor, Tensor]:
        """The weights of an ideal head of a label, uniform where it names no key, and the queries for which it does."""
        B, T = self.batch.inputs.shape
        found, named = (
            torch.ones(T, T).tril().div(torch.arange(1, T + 1).unsqueeze(1)).repeat(B, 1, 1),
            torch.zeros(B, T),
        )
        for b, row in enumerate(self.batch.inputs.tolist()):
            for q in range(T):
                keys = ideal_keys(self.program, name, row, q)
                if keys:
                    found[b, q], named[b, q] = 0.0, len(keys) <= q
                    found[b, q, keys] = 1 / len(keys)
        return found, named.bool()

    def lift(self, number: int, ideal: Tensor, named: Tensor) -> float:
        """A head's lift on the keys of an ideal head, over the queries for which these are some of the visible ones."""
        if not named.any():
            return 0.0
        T = ideal.size(-1)
        target = (ideal > 0)[named]
        mass = (self.clean[:, number][named] * target).sum(-1).mean()
        uniform = (target.sum(-1) / torch.arange(1, T + 1).expand(len(ideal), T)[named]).mean()
        return float((mass - uniform) / (1 - uniform))
