"""The sentences of a grade, for the terminal and for Markdown."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Container, Sequence
from os.path import commonprefix

from mhsa_cli.records.check import (
    IN_PROCESS,
    NOTHING,
    ONLY_IF,
    OUTSIDE,
    REFERENCE,
    TIMEOUT,
    UNCONFIRMED,
    Grade,
    Law,
    NamedFault,
)
from mhsa_cli.renderers.kit.ticks import short
from mhsa_cli.text import plural

VERDICTS = {"right": "right", "wrong": "WRONG", "uncallable": "not callable", "unclear": "not clear"}
# Verdicts on what was not graded, by the kind of the failure.
FAILURES = {TIMEOUT: "timed out", NOTHING: "nothing to grade", OUTSIDE: "link refused", UNCONFIRMED: "not confirmed"}
# State of a law -> its word, in the order in which laws are listed.
STATES = {"fails": "WRONG", "open": "not clear", "edge": "edge", "holds": "ok", "not tested": "not tested"}
PLAIN_STATES = ("holds", "not tested")  # of laws that a low terminal only counts
SHOWN_ATTEMPTS, LONGEST_ATTEMPT = 5, 300  # attempts that are shown, and characters of each
MASK_LEGEND = "mask as measured, queries x keys: x seen, . hidden"
UNKNOWN = ("unknown_setting", "unknown_argument")  # kinds of attempts that need a value from the user


def on_one_line(text: str) -> str:
    """Join the lines of a text."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def state_of(law: Law, grade: Grade) -> str:
    """State of a law, a key of STATES."""
    if law.passed is None:
        return "open" if grade.verdict == "unclear" and law.id == REFERENCE else "not tested"
    return "holds" if law.passed else "edge" if law.edge else "fails"


def law_state(law: Law, grade: Grade) -> str:
    """Word for the state of a law."""
    return STATES[state_of(law, grade)]


def by_state(grade: Grade) -> list[Law]:
    """Sort laws by state: failed, failed at an edge, holding, not tested."""
    return sorted(grade.laws, key=lambda law: list(STATES).index(state_of(law, grade)))


def unlisted(grade: Grade, listed: Sequence[Law], detected: bool) -> str:
    """Count the laws that are not listed, by their states; `detected`: what was detected is left out as well."""
    counts = Counter(state_of(law, grade) for law in grade.laws if law not in listed)
    parts = [f"{counts[state]} {STATES[state]}" for state in STATES if counts[state]]
    more = ", and what was detected" if detected else ""
    return f"{'other ' if listed else ''}laws: {', '.join(parts)}; -v lists them{more}"


def law_finding(law: Law) -> str:
    """Finding of a law that fails or was not tested; "" for one that holds."""
    return "" if law.passed else on_one_line(law.finding)


def difference(law: Law) -> str:
    """Largest difference of a law, or ""."""
    return "" if law.max_difference is None else short(law.max_difference)


def verdict_word(grade: Grade) -> str:
    """The verdict in a table."""
    return FAILURES.get(grade.failure, VERDICTS[grade.verdict])


def opening(grade: Grade) -> str:
    """The verdict, as its sentence begins."""
    if grade.verdict == "uncallable":
        return FAILURES.get(grade.failure, "cannot be called")
    ways = len(faults_of(grade))
    return f"wrong in {ways} ways" if grade.verdict == "wrong" and ways > 1 else VERDICTS[grade.verdict].lower()


def verdict_sentence(grade: Grade) -> str:
    """The grade in one sentence, after its opening: what holds, the first fault, or why there is none."""
    if grade.verdict == "right":
        return "; ".join([*_condition(grade), *_what_holds(grade)])
    if grade.verdict == "uncallable":
        return f"{len(grade.tried)} attempts failed" if len(grade.tried) > 1 else cause(grade)
    if grade.verdict == "unclear":
        return (
            "no law is broken, but the output is neither that of plain attention nor that of a known fault: the block "
            "may be another kind of attention, or hold more than attention"
        )
    if faults := faults_of(grade):
        return on_one_line(faults[0].explanation)
    law = leading(grade, "fails")
    if law and any(one.id == REFERENCE and one.passed for one in grade.laws):
        return f"a law fails: {_law(law)}"
    return "no known variant matches" + (f"; a law fails: {_law(law)}" if law else "")


def _condition(grade: Grade) -> list[str]:
    """Condition of a right grade: a layout of x other than the one its own code names."""
    return [f"only if {grade.detected[ONLY_IF]}"] if ONLY_IF in grade.codes else []


def _what_holds(grade: Grade) -> list[str]:
    hold = [law for law in grade.laws if law.passed]
    reference = [law for law in hold if law.id == REFERENCE and law.max_difference is not None]
    edges = [law.title for law in grade.laws if state_of(law, grade) == "edge"]
    parts = [f"{plural(len(hold), 'law')} hold{'s' if len(hold) == 1 else ''}"]
    parts += [f"equal to the reference to {difference(law)}" for law in reference[:1]]
    return [*parts, f"fails at an edge: {', '.join(edges)}"] if edges else parts


def leading(grade: Grade, state: str) -> Law | None:
    """Of the laws in a state, the one that explains most."""
    laws = [law for law in grade.laws if state_of(law, grade) == state]
    return min(laws, key=lambda law: law.rank, default=None)


def _law(law: Law) -> str:
    return f"{law.title} ({on_one_line(law.finding)})" if law.finding else law.title


def cause(grade: Grade) -> str:
    """Why a block cannot be called: the first failed attempt, else the first note."""
    return next((on_one_line(note.text) for note in [*grade.tried, *grade.notes]), "the cause is not known")


def faults_of(grade: Grade) -> list[NamedFault]:
    """The faults that make a block wrong."""
    return [fault for fault in grade.faults if not fault.edge]


def finding(grade: Grade) -> str:
    """What makes a block wrong, in few words: its faults, else the failed law."""
    if faults := faults_of(grade):
        return "; ".join(fault.title for fault in faults)
    law = leading(grade, "fails")
    return _law(law) if law else ""


def remarks(grade: Grade) -> list[str]:
    """What does not make a block wrong, in few words: why it was not graded, a condition, what fails at an edge."""
    found = [*_condition(grade)]
    if grade.verdict == "uncallable":
        more = len(grade.tried) - 1
        found.append(cause(grade) + (f" (and {more} more)" if more > 0 else ""))
    elif grade.verdict == "unclear":
        found.append("no law is broken: another kind of attention, or more than attention")
    edges = [fault for fault in grade.faults if fault.edge]
    shown = {fault.law for fault in edges}
    found += [fault.title for fault in edges]
    return found + [
        f"fails: {law.title}" for law in grade.laws if state_of(law, grade) == "edge" and law.id not in shown
    ]


def attempts(grade: Grade) -> list[str]:
    """The failed attempts, each on one line; of many, the first ones and the number of the others."""
    lines = [on_one_line(attempt.text) for attempt in grade.tried]
    lines = [line if len(line) <= LONGEST_ATTEMPT else f"{line[:LONGEST_ATTEMPT]}..." for line in lines]
    if len(lines) <= SHOWN_ATTEMPTS:
        return lines
    more = len(lines) - SHOWN_ATTEMPTS + 1
    return [*lines[: SHOWN_ATTEMPTS - 1], f"{more:,} more attempts failed; --json lists all of them"]


def place(grade: Grade) -> str:
    """Place of the first fault that has one."""
    return next((fault.place for fault in faults_of(grade) if fault.place), "")


def place_words(fault: NamedFault) -> str:
    """Where a fault most likely is, whether the tensors say the same, and under which arguments it shows."""
    given = f" with {fault.arguments}" if fault.arguments else ""
    if not fault.place:
        return given
    found = f"most likely at {fault.place}"
    if fault.departs == fault.place:
        found += ", where the tensors first differ as well"
    elif fault.departs:
        found += f"; the tensors first differ at {fault.departs}"
    return f"{given}: {found}"


def positions(grade: Grade) -> str:
    """The verdict in each position of the switches, or ""."""
    rows = [(f"with {one.arguments}" if one.arguments else "as built", one.verdict) for one in grade.switched]
    return "; ".join(f"{how}: {VERDICTS[verdict]}" for how, verdict in rows)


def fault_parts(grade: Grade) -> list[tuple[NamedFault, list[tuple[str, str]]]]:
    """The sentences of each fault, as pairs of a label (or "") and a text.

    The first explanation of a wrong grade is left out: it is the verdict. Remarks come last.
    """
    joint = _share_a_variant(faults_of(grade))
    parts = []
    for number, fault in enumerate(sorted(grade.faults, key=lambda fault: fault.edge)):
        is_verdict = number == 0 and grade.verdict == "wrong" and not fault.edge
        texts = [("", "" if is_verdict else fault.explanation), ("instead", fault.instead)]
        shown = "" if "error" in fault.facts or (fault.edge and not fault.law) else "shown by a law"
        texts += [] if joint and not fault.edge else [("", _match([fault]) or shown)]
        parts.append((fault, [(label, on_one_line(text)) for label, text in texts if text.strip()]))
    return parts


def match_of_all(grade: Grade) -> str:
    """How closely the output equals the one variant that has all faults, or ""."""
    return _match(faults_of(grade)) if _share_a_variant(faults_of(grade)) else ""


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
    if any(note.kind == IN_PROCESS for note in grade.notes):  # no command knows the object
        return "", ""
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
    """Count the verdicts."""
    verdicts = Counter(verdict_word(grade) for grade in grades)
    words = [*VERDICTS.values(), *FAILURES.values()]
    parts = [f"{verdicts[word]:,} {word.lower()}" for word in words if verdicts[word]]
    return f"{plural(len(grades), 'block')}: {', '.join(parts) or 'nothing was graded'}"


def by_fault(grades: Sequence[Grade]) -> list[tuple[NamedFault, list[Grade]]]:
    """List each fault with the blocks that have it, the most frequent first."""
    faults: dict[str, NamedFault] = {}
    owners: dict[str, list[Grade]] = {}
    for grade in grades:
        for fault in {fault.id: fault for fault in reversed(faults_of(grade))}.values():
            faults.setdefault(fault.id, fault)
            owners.setdefault(fault.id, []).append(grade)
    return [(faults[key], owners[key]) for key in sorted(faults, key=lambda key: -len(owners[key]))]


def names_of(grades: Sequence[Grade]) -> tuple[list[str], str]:
    """Short names of graded blocks, and what they share; files and folders that hold no block have no name to share."""
    without = {grade.block for grade in grades if grade.failure in (NOTHING, OUTSIDE)}
    return short_names([grade.block for grade in grades], without)


def short_names(blocks: Sequence[str], without: Container[str] = ()) -> tuple[list[str], str]:
    """Shorten FILE:NAME by the folder and the name that all blocks share; returns the rest, and what they share.

    Those `without` a block share no name.
    """
    parts = [block.rpartition(":") for block in blocks]
    parts = [(file, ":", name) if file and name.isidentifier() else (block, "", "")
             for block, (file, _, name) in zip(blocks, parts, strict=True)]  # fmt: skip
    if len(blocks) < 2:
        return list(blocks), ""
    folder = commonprefix([file for file, _, _ in parts])
    folder = folder[: folder.rfind("/") + 1]
    names = {name for block, (_, _, name) in zip(blocks, parts, strict=True) if block not in without}
    files = [file[len(folder) :] for file, _, _ in parts]
    place = f" in {folder}" if folder else ""
    if len(names) == 1 and all(names):
        return files, f"{names.pop()} of the files{place}"
    short_blocks = [f"{file}{colon}{name}" for file, (_, colon, name) in zip(files, parts, strict=True)]
    return short_blocks, f"files{place}" if folder else ""
