"""What a grade says, in words: the same in a terminal and in Markdown. Nothing is said that the grade does not hold."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from os.path import commonprefix

from mhsa_cli.records.check import ONLY_IF, REFERENCE, Grade, Law, NamedFault
from mhsa_cli.renderers.kit.ticks import short
from mhsa_cli.text import plural

VERDICTS = {"right": "right", "wrong": "WRONG", "uncallable": "not callable", "unclear": "not clear"}
# How a law came out, in the order in which laws are listed.
STATES = {"fails": "WRONG", "edge": "edge", "holds": "ok", "not asked": "not asked"}
GUESSES = ("guess_setting", "guess_parameter")  # kinds of tries that want a value from the user


def on_one_line(text: str) -> str:
    """Join the lines of a text, as an error message may have several."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def state_of(law: Law) -> str:
    """Give how a law came out, a key of STATES."""
    if law.passed is None:
        return "not asked"
    return "holds" if law.passed else "edge" if law.edge else "fails"


def law_state(law: Law) -> str:
    """Say in a word how a law came out."""
    return STATES[state_of(law)]


def by_state(laws: Sequence[Law]) -> list[Law]:
    """Order laws: first those that fail, then those that fail at an edge, those that hold, those not asked."""
    return sorted(laws, key=lambda law: list(STATES).index(state_of(law)))


def law_found(law: Law) -> str:
    """Say what was seen of a law that does not hold or could not be asked; nothing of one that holds."""
    return "" if law.passed else on_one_line(law.seen)


def opening(grade: Grade) -> str:
    """Give the verdict itself, as a sentence begins with it."""
    if grade.verdict == "uncallable":
        return "cannot be called"
    if grade.verdict == "unclear":
        return "not clear"
    several = grade.verdict == "wrong" and len(grade.faults) > 1
    return f"wrong in {len(grade.faults)} ways" if several else grade.verdict


def verdict_sentence(grade: Grade) -> str:
    """Give the grade in one sentence, without its opening: what holds, the first fault, or why there is none."""
    if grade.verdict == "right":
        return "; ".join([*_condition(grade), *_what_holds(grade.laws)])
    if grade.verdict == "uncallable":
        many = len(grade.tried) > 1
        return f"{plural(len(grade.tried), 'way')} tried, none works" if many else cause(grade)
    if grade.verdict == "unclear":
        return (
            "no law is broken, but its output is neither that of plain attention nor that of a known fault: it may be "
            "another kind of attention, or hold more than attention"
        )
    if grade.faults:
        return on_one_line(grade.faults[0].explanation)
    law = leading(grade, "fails")
    if law and any(one.id == REFERENCE and one.passed for one in grade.laws):
        return f"a law fails: {_law(law)}"
    return "no known variant matches" + (f"; a law that fails: {_law(law)}" if law else "")


def _condition(grade: Grade) -> list[str]:
    """Say on what a right grade hangs: its own code speaks of another layout of x than the one it is right with."""
    return [f"only if {grade.found[ONLY_IF]}"] if ONLY_IF in grade.codes else []


def _what_holds(laws: Sequence[Law]) -> list[str]:
    hold = [law for law in laws if law.passed]
    said = [f"{plural(len(hold), 'law')} hold{'s' if len(hold) == 1 else ''}"]
    for law in hold:
        if law.id == REFERENCE and law.worst is not None:
            said.append(f"equal to the reference to {short(law.worst)}")
            break
    edges = [law.name for law in laws if state_of(law) == "edge"]
    return [*said, f"at an edge it fails: {', '.join(edges)}"] if edges else said


def leading(grade: Grade, state: str) -> Law | None:
    """Find the law of a state that tells most."""
    laws = [law for law in grade.laws if state_of(law) == state]
    return min(laws, key=lambda law: law.rank, default=None)


def _law(law: Law) -> str:
    return f"{law.name} ({on_one_line(law.seen)})" if law.seen else law.name


def cause(grade: Grade) -> str:
    """Say why a target cannot be called: the first thing tried, else the first note."""
    return next((on_one_line(remark.text) for remark in [*grade.tried, *grade.notes]), "nothing is known of why")


def finding(grade: Grade) -> str:
    """Say in few words what a table needs: the faults, the failing law, the cause, or what fails at an edge."""
    if grade.faults:
        return "; ".join(fault.title for fault in grade.faults)
    if grade.verdict == "uncallable":
        more = len(grade.tried) - 1
        return cause(grade) + (f" (and {plural(more, 'other way')})" if more > 0 else "")
    if grade.verdict == "right" and _condition(grade):
        return f"right {_condition(grade)[0]}"
    for state in ("fails", "edge"):
        if law := leading(grade, state):
            return f"{state}: {_law(law)}"
    return ""


def place(grade: Grade) -> str:
    """Say where the first fault with a known place is."""
    return next((fault.place for fault in grade.faults if fault.place), "")


def fault_parts(grade: Grade) -> list[tuple[NamedFault, list[tuple[str, str]]]]:
    """Give what is said of each fault, in order, as pairs of a label ("" where it needs none) and a sentence.

    The first explanation of a wrong grade is left away: it is the verdict.
    """
    together = _share_a_variant(grade.faults)
    parts = []
    for number, fault in enumerate(grade.faults):
        told = number == 0 and grade.verdict == "wrong"
        said = [("", "" if told else fault.explanation), ("instead", fault.instead)]
        said += [] if together else [("", _match([fault]) or "a law shows it")]
        parts.append((fault, [(label, on_one_line(text)) for label, text in said if text.strip()]))
    return parts


def match_of_all(grade: Grade) -> str:
    """Say how closely the output equals the one variant that has all faults; nothing where there is none."""
    return _match(grade.faults) if _share_a_variant(grade.faults) else ""


def _share_a_variant(faults: Sequence[NamedFault]) -> bool:
    """Tell whether several faults were found together: one variant has them all, so there is one figure."""
    figures = {fault.max_difference for fault in faults}
    return len(faults) > 1 and len(figures) == 1 and None not in figures


def _match(faults: Sequence[NamedFault]) -> str:
    figure = faults[0].max_difference
    these = "this fault" if len(faults) == 1 else f"these {len(faults)} faults"
    return "" if figure is None else f"your output equals the variant with {these} to {short(figure)}"


def next_step(grade: Grade) -> tuple[str, str]:
    """Give what to do next: what for, and the command. Both are empty where there is none."""
    target = shlex.quote(grade.block)
    if grade.verdict == "right":
        if grade.codes.get("kind") != "module" or grade.codes.get("mask") == "none" or ONLY_IF in grade.codes:
            return "", ""
        return "train it", f"mhsa train {shlex.quote(f'model.attention={grade.block}')}"
    if grade.verdict in ("wrong", "unclear"):
        return "after a change", f"mhsa check {target}"
    wanted = [f"--with {one.facts['name']}=VALUE" for one in grade.tried if one.kind in GUESSES]
    if wanted:
        return "give it what nobody can guess", f"mhsa check {target} {' '.join(wanted)}"
    if any(one.kind == "build" for one in grade.tried):
        return "if it needs arguments", f"mhsa check {target} --with NAME=VALUE"
    return "", ""


def summary(grades: Sequence[Grade]) -> str:
    """Count the verdicts, and name the faults that most submissions share."""
    verdicts = Counter[str](grade.verdict for grade in grades)
    parts = [f"{verdicts[v]:,} {word.lower()}" for v, word in VERDICTS.items() if verdicts[v]]
    said = f"{plural(len(grades), 'submission')}: {', '.join(parts) or 'nothing was graded'}"
    faults = Counter(name for grade in grades for name in dict.fromkeys(f.name for f in grade.faults))
    most = max(faults.values(), default=0)
    if most < 2:
        return said
    titles = {fault.name: fault.title for grade in grades for fault in grade.faults}
    names = [titles[name] for name, number in faults.items() if number == most]
    return f"{said}; most frequent: {', '.join(names)} (in {most:,}{' each' if len(names) > 1 else ''})"


def short_names(targets: Sequence[str]) -> tuple[list[str], str]:
    """Leave away the folder, and the name if it is one, that all targets share; gives the rest, and what they share."""
    parts = [target.rpartition(":") for target in targets]
    parts = [(file, ":", name) if file and name.isidentifier() else (target, "", "")
             for target, (file, _, name) in zip(targets, parts, strict=True)]  # fmt: skip
    if len(targets) < 2:
        return list(targets), ""
    folder = commonprefix([file for file, _, _ in parts])
    folder = folder[: folder.rfind("/") + 1]
    names = {name for _, _, name in parts}
    files = [file[len(folder) :] for file, _, _ in parts]
    place = f" in {folder}" if folder else ""
    if len(names) == 1 and all(names):
        return files, f"{names.pop()} of the files{place}"
    return [
        f"{file}{colon}{name}" for file, (_, colon, name) in zip(files, parts, strict=True)
    ], f"files{place}" if folder else ""
