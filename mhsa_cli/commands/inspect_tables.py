"""The tables that `mhsa inspect-heads` shows instead of maps: scores, circuits, and what is lost without some heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhsa_cli.commands.output import Paper, picture_surface, print_json, write_picture
from mhsa_cli.jobs.load_heads import heading, read_addresses, report_of
from mhsa_cli.records import HeadMaps
from mhsa_cli.records.claim_words import sentences
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.circuits import circuits_table
from mhsa_cli.renderers.pictures.heads import ablation_table, score_table
from mhsa_cli.runs.heads import score_to_dict, verdict_to_dict
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head

if TYPE_CHECKING:
    from mhsa_cli.jobs.measure_heads import Measurements


@dataclass(frozen=True)
class Part:
    """One table: its words, how it is drawn on a surface, its JSON, and the step it was measured at."""

    step: int
    heading: str
    draw: Any
    document: dict[str, Any]


class More:
    """Tables about the heads at `addresses` of one run; its checkpoint is loaded only where one needs it."""

    def __init__(self, folder: RunDir, maps: HeadMaps, addresses: Sequence[Head], attention: str | None = None) -> None:
        self.folder, self.maps, self.addresses, self.attention = folder, maps, addresses, attention

    @cached_property
    def _measured(self) -> Measurements:
        from mhsa_cli.jobs.measure_heads import Measurements  # torch comes with it

        return Measurements(self.folder, self.attention)

    def scores(self, definition: str | None) -> Part:
        """Show every score of every head; with a definition also that paper's induction score."""
        report = report_of(self.maps)
        chosen = [head for head in report.heads if head.address in self.addresses]
        shown = replace(report, heads=chosen)
        document: dict[str, Any] = {"verdict": verdict_to_dict(report.verdict)}
        heads = [{"layer": h.layer, "head": h.head, **score_to_dict(h)} for h in chosen]
        papers: dict[Head, float] | None = None
        if definition is not None:
            figures = self._measured.prefix_matching(self.maps.step)
            papers = dict(zip([h.address for h in report.heads], figures, strict=True))
            for head in heads:
                head["olsson2022"] = papers[Head(head["layer"], head["head"])]
        document["heads"] = heads

        def draw(surface: Surface) -> Lines:
            return score_table(shown, surface, papers=papers)

        return Part(self.maps.step, sentences(report.verdict.claims), draw, document)

    def circuits(self) -> Part:
        """Show what the heads' weights compute."""
        found = self._measured.circuits()
        found = replace(found, heads=[head for head in found.heads if head.address in self.addresses])

        def draw(surface: Surface) -> Lines:
            return circuits_table(found, surface)

        return Part(self._measured.step, "", draw, {"circuits": asdict(found)})

    def ablation(self, text: str) -> Part:
        """Show loss and accuracy without the heads that `text` names."""
        heads = read_addresses(text, self.maps, "--ablate")
        found, inputs = self._measured.ablation(heads)
        names = [str(head) for head in heads]

        def draw(surface: Surface) -> Lines:
            return ablation_table(found, surface)

        document: dict[str, Any] = {"heads": names, "inputs": inputs, "step": self._measured.step}
        document = {"ablation": {**document, "ways": [asdict(one) for one in found]}}
        return Part(self._measured.step, f"without {', '.join(names)}, on {inputs}", draw, document)


def show_tables(folder: RunDir, maps: HeadMaps, parts: Sequence[Part], file: Path | None, as_json: bool) -> None:
    """Write the tables to the picture file, if one is wanted, and print them, or their JSON."""
    step = max(part.step for part in parts)
    if file is not None:
        surface = picture_surface(file)
        picture = Lines([line for part in parts for line in part.draw(surface)])
        write_picture(file, picture, f"heads of {folder.name}")
    if as_json:
        document: dict[str, Any] = {"run": str(folder.path), "step": step, "task": maps.task}
        for part in parts:
            document |= part.document
        print_json(document)
        return
    paper = Paper()
    paper.say(f"{heading(folder, step)}\n")
    for part in parts:
        if part.step != step:  # the newest checkpoint is damaged, the measurements beside it are not
            paper.say(f"of step {part.step}, the newest whole checkpoint:")
        if part.heading:
            paper.say(part.heading)
        paper.draw(part.draw(paper.surface))
        paper.say()
    paper.offer(f"next: mhsa explain {run_argument(folder.path)}")
