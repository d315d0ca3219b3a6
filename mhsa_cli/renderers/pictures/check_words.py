"""The sentences of a grade, for the terminal and for Markdown."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from os.path import commonprefix

from mhsa_cli.records.check import ONLY_IF, REFERENCE, Grade, Law, NamedFault
from mhsa_cli.renderers.kit.ticks import short
from mhsa_cli.text import plural

VERDICTS = {"right": "right", "wrong": "WRONG", "uncallable": "not callable", "unclear": "not clear"}
# State of a law -> its word, in the order in which laws are listed.
STATES = {"fails": "WRONG", "edge": "edge", "holds": "ok", "not tested": "not tested"}
UNKNOWN = ("unknown_setting", "unknown_argument")  # kinds of attempts that need a value from the user


def on_one_line(text: str) -> str:
    """Join the lines of a text."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def state_of(law: Law) -> str:
    """State of a law, a key of STATES."""
    if law.passed is None:
        return "not tested"
    return "holds" if law.passed else "edge" if law.edge else "fails"


def law_state(law: Law) -> str:
    """Word for the state of a law."""
    return STATES[state_of(law)]


def by_state(laws: Sequence[Law]) -> list[Law]:
    """Sort laws by state: failed, failed at an edge, holding, not tested."""
    return sorted(laws, key=lambda law: list(STATES).index(state_of(law)))


def law_finding(law: Law) -> str:
    """Finding of a law that fails or was not tested; "" for one that holds."""
    return "" if law.passed else on_one_line(law.finding)


def difference(law: Law) -> str:
    """Largest difference of a law, or ""."""
    return "" if law.max_difference is None else short(law.max_difference)


def opening(grade: Grade) -> str:
    """The verdict, as its sentence begins."""
    if grade.verdict == "uncallable":
        return "cannot be called"
    several = grade.verdict == "wrong" and len(grade.faults) > 1
    return f"wrong in {len(grade.faults)} ways" if several else VERDICTS[grade.verdict].lower()


def verdict_sentence(grade: Grade) -> str:
    """The grade in one sentence, after its opening: what holds, the first fault, or why there is none."""
    if grade.verdict == "right":
        return "; ".join([*_condition(grade), *_what_holds(grade.laws)])
    if grade.verdict == "uncallable":
        return f"{len(grade.tried)} attempts failed" if len(grade.tried) > 1 else cause(grade)
    if grade.verdict == "unclear":
        return (
            "no law is broken, but the output is neither that of plain attention nor that of a known fault: the block "
            "may be another kind of attention, or hold more than attention"
        )
    if grade.faults:
        return on_one_line(grade.faults[0].explanation)
    law = leading(grade, "fails")
    if law and any(one.id == REFERENCE and one.passed for one in grade.laws):
        return f"a law fails: {_law(law)}"
    return "no known variant matches" + (f"; a law fails: {_law(law)}" if law else "")


def _condition(grade: Grade) -> list[str]:
    """Condition of a right grade: a layout of x other than the one its own code names."""
    return [f"only if {grade.detected[ONLY_IF]}"] if ONLY_IF in grade.codes else []


def _what_holds(laws: Sequence[Law]) -> list[str]:
    hold = [law for law in laws if law.passed]
    reference = [law for law in hold if law.id == REFERENCE and law.max_difference is not None]
    edges = [law.title for law in laws if state_of(law) == "edge"]
    parts = [f"{plural(len(hold), 'law')} hold{'s' if len(hold) == 1 else ''}"]
    parts += [f"equal to the reference to {difference(law)}" for law in reference[:1]]
    return [*parts, f"fails at an edge: {', '.join(edges)}"] if edges else parts


def leading(grade: Grade, state: str) -> Law | None:
    """Of the laws in a state, the one that explains most."""
    laws = [law for law in grade.laws if state_of(law) == state]
    return min(laws, key=lambda law: law.rank, default=None)


def _law(law: Law) -> str:
    return f"{law.title} ({on_one_line(law.finding)})" if law.finding else law.title


def cause(grade: Grade) -> str:
    """Why a block cannot be called: the first failed attempt, else the first note."""
    return next((on_one_line(note.text) for note in [*grade.tried, *grade.notes]), "the cause is not known")


def finding(grade: Grade) -> str:
    """The grade in few words, for a table: the faults, the failed law, the cause, or what fails at an edge."""
    if grade.faults:
        return "; ".join(fault.title for fault in grade.faults)
    if grade.verdict == "uncallable":
        more = len(grade.tried) - 1
        return cause(grade) + (f" (and {more} more)" if more > 0 else "")
    if grade.verdict == "right" and _condition(grade):
        return f"right {_condition(grade)[0]}"
    for state in ("fails", "edge"):
        if law := leading(grade, state):
            return f"{state}: {_law(law)}"
    return ""


def place(grade: Grade) -> str:
    """Place of the first fault that has one."""
    return next((fault.place for fault in grade.faults if fault.place), "")


def fault_parts(grade: Grade) -> list[tuple[NamedFault, list[tuple[str, str]]]]:
    """The sentences of each fault, as pairs of a label (or "") and a text.

    The first explanation of a wrong grade is left out: it is the verdict.
    """
    joint = _share_a_variant(grade.faults)
    parts = []
    for number, fault in enumerate(grade.faults):
        is_verdict = number == 0 and grade.verdict == "wrong"
        texts = [("", "" if is_verdict else fault.explanation), ("instead", fault.instead)]
        texts += [] if joint else [("", _match([fault]) or "shown by a law")]
        parts.append((fault, [(label, on_one_line(text)) for label, text in texts if text.strip()]))
    return parts


def match_of_all(grade: Grade) -> str:
    """How closely the output equals the one variant that has all faults, or ""."""
    return _match(grade.faults) if _share_a_variant(grade.faults) else ""


def _share_a_variant(faults: Sequence[NamedFault]) -> bool:
    """Whether one variant has all faults, and so one difference."""
    differences = {fault.max_difference for fault in faults}
    return len(faults) > 1 and len(differences) == 1 and None not in differences


def _match(faults: Sequence[NamedFault]) -> str:
    off = faults[0].max_difference
    these = "this fault" if len(faults) == 1 else f"these {len(faults)} faults"
    return "" if off is None else f"your output equals the variant with {these} to {short(off)}"


def next_step(grade: Grade) -> tuple[str, str]:
    """The next step: its purpose and its command, or two empty texts."""
    check = f"mhsa check {shlex.quote(grade.block)}"
    if grade.verdict == "right":
        if grade.codes.get("kind") != "module" or grade.codes.get("mask") == "none" or ONLY_IF in grade.codes:
            return "", ""
        return "train it", f"mhsa train {shlex.quote(f'model.attention={grade.block}')}"
    if grade.verdict in ("wrong", "unclear"):
        return "after a change", check
    unknown = [f"--with {one.facts['name']}=VALUE" for one in grade.tried if one.kind in UNKNOWN]
    if unknown:
        return "pass what cannot be inferred", f"{check} {' '.join(unknown)}"
    if any(one.kind == "build" for one in grade.tried):
        return "if it needs arguments", f"{check} --with NAME=VALUE"
    return "", ""


def summary(grades: Sequence[Grade]) -> str:
    """Count the verdicts, and name the most frequent faults."""
    verdicts = Counter[str](grade.verdict for grade in grades)
    parts = [f"{verdicts[v]:,} {word.lower()}" for v, word in VERDICTS.items() if verdicts[v]]
    text = f"{plural(len(grades), 'block')}: {', '.join(parts) or 'nothing was graded'}"
    faults = Counter(name for grade in grades for name in dict.fromkeys(f.id for f in grade.faults))
    most = max(faults.values(), default=0)
    if most < 2:
        return text
    titles = {fault.id: fault.title for grade in grades for fault in grade.faults}
    names = [titles[name] for name, number in faults.items() if number == most]
    return f"{text}; most frequent: {', '.join(names)} (in {most:,}{' each' if len(names) > 1 else ''})"


def short_names(blocks: Sequence[str]) -> tuple[list[str], str]:
    """Shorten FILE:NAME by the folder and the name that all blocks share; returns the rest, and what they share."""
    parts = [block.rpartition(":") for block in blocks]
    parts = [(file, ":", name) if file and name.isidentifier() else (block, "", "")
             for block, (file, _, name) in zip(blocks, parts, strict=True)]  # fmt: skip
    if len(blocks) < 2:
        return list(blocks), ""
    folder = commonprefix([file for file, _, _ in parts])
    folder = folder[: folder.rfind("/") + 1]
    names = {name for _, _, name in parts}
    files = [file[len(folder) :] for file, _, _ in parts]
    place = f" in {folder}" if folder else ""
    if len(names) == 1 and all(names):
        return files, f"{names.pop()} of the files{place}"
    short_blocks = [f"{file}{colon}{name}" for file, (_, colon, name) in zip(files, parts, strict=True)]
    return short_blocks, f"files{place}" if folder else ""
