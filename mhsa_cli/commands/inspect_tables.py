"""The tables of `mhsa inspect-heads`: scores, circuits and ablations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from mhsa_cli.jobs.load_heads import read_addresses, report_of
from mhsa_cli.records.claim_words import sentences
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.circuits import circuits_table
from mhsa_cli.renderers.pictures.heads import ablation_table, score_table
from mhsa_cli.runs.heads import score_to_dict, verdict_to_dict
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head

if TYPE_CHECKING:
    from mhsa_cli.jobs.trained_run import TrainedRun


@dataclass(frozen=True)
class HeadTable:
    """One table: the step it was measured at, its heading, how it is drawn on a surface, and its JSON."""

    step: int
    heading: str
    draw: Callable[[Surface], Lines]
    document: dict[str, Any]


class HeadTables:
    """Tables of the heads at `addresses` of one run; its checkpoint is loaded only if needed."""

    def __init__(self, folder: RunDir, maps: HeadMaps, addresses: Sequence[Head], attention: str | None) -> None:
        self.folder, self.maps, self.addresses, self.attention = folder, maps, addresses, attention

    @cached_property
    def _trained(self) -> TrainedRun:
        from mhsa_cli.jobs.trained_run import load_trained_run  # torch comes with it

        return load_trained_run(self.folder, self.attention)

    def scores(self, definition: str | None) -> HeadTable:
        """Make the table of all scores; with a definition also the induction score of that paper."""
        report = report_of(self.maps)
        chosen = [head for head in report.heads if head.address in self.addresses]
        heads = [{"layer": h.layer, "head": h.head, **score_to_dict(h)} for h in chosen]
        papers: dict[Head, float] | None = None
        if definition is not None:
            from mhsa_cli.jobs.trained_run import score_prefix_matching  # torch comes with it

            figures = score_prefix_matching(self._trained, self.maps.step)
            papers = dict(zip([h.address for h in report.heads], figures, strict=True))
            heads = [{**one, "olsson2022": papers[head.address]} for one, head in zip(heads, chosen, strict=True)]
        draw = partial(score_table, replace(report, heads=chosen), papers=papers)
        document = {"verdict": verdict_to_dict(report.verdict), "heads": heads}
        return HeadTable(self.maps.step, sentences(report.verdict.claims), draw, document)

    def circuits(self) -> HeadTable:
        """Make the table of what the weights compute."""
        from mhsa_cli.jobs.trained_run import compute_circuits  # torch comes with it

        found = compute_circuits(self._trained)
        found = replace(found, heads=[head for head in found.heads if head.address in self.addresses])
        return HeadTable(self._trained.step, "", partial(circuits_table, found), {"circuits": asdict(found)})

    def ablation(self, text: str) -> HeadTable:
        """Make the table of loss and accuracy with the heads in `text` ablated."""
        from mhsa_cli.jobs.trained_run import measure_ablation  # torch comes with it

        heads = read_addresses(text, self.maps, "--ablate")
        found, inputs = measure_ablation(self._trained, heads)
        names, step = [str(head) for head in heads], self._trained.step
        document = {"heads": names, "inputs": inputs, "step": step, "ways": [asdict(one) for one in found]}
        heading = f"ablation of {', '.join(names)} on {inputs}"
        return HeadTable(step, heading, partial(ablation_table, found), {"ablation": document})
