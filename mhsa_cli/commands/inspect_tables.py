"""The tables of `mhsa inspect-heads`: scores, circuits, ablations, patches, logit lens and direct logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.config.own_score import short_score
from mhsa_cli.jobs.load_heads import read_addresses, report_of
from mhsa_cli.jobs.load_scores import with_scores
from mhsa_cli.jobs.patch_paths import read_patches
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines, stacked
from mhsa_cli.renderers.pictures.circuits import circuits_table
from mhsa_cli.renderers.pictures.explain import explain_model
from mhsa_cli.renderers.pictures.heads import ablation_table, score_table
from mhsa_cli.renderers.pictures.own_scores import kept_names, own_score_table
from mhsa_cli.renderers.pictures.patching import activation_table, direct_table, lens_table, paper_table, path_table
from mhsa_cli.runs.codec import plain
from mhsa_cli.runs.heads import score_to_dict, verdict_to_dict
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head, plural

if TYPE_CHECKING:
    from mhsa_cli.jobs.trained_run import TrainedRun
    from mhsa_cli.renderers.figures.sheet import Draw


@dataclass(frozen=True)
class HeadTable:
    """One table: its step, its heading, how it is drawn on a surface, its JSON, and the parts of its figure."""

    step: int
    heading: str
    draw: Callable[[Surface], Lines]
    document: dict[str, Any]
    parts: Callable[[], dict[str, Draw | None]] = dict


class HeadTables:
    """Tables of the heads at `addresses` of one run; its checkpoint is loaded only if needed."""

    def __init__(
        self,
        folder: RunDir,
        maps: HeadMaps,
        addresses: Sequence[Head],
        own: OwnCode,
        step: int | None = None,
    ) -> None:
        self.folder, self.maps, self.addresses = folder, maps, addresses
        self.own, self.step = own, step

    @cached_property
    def _trained(self) -> TrainedRun:
        from mhsa_cli.jobs.trained_run import load_trained_run  # torch comes with it

        return load_trained_run(self.folder, self.own, self.step)

    def scores(self, definition: str | None) -> HeadTable:
        """Make the table of all scores; with a definition also the induction score of that paper."""
        report = report_of(self.maps)
        chosen = [head for head in report.heads if head.address in self.addresses]
        heads = [{"layer": h.layer, "head": h.head, **score_to_dict(h)} for h in chosen]
        document: dict[str, Any] = {"verdict": verdict_to_dict(report.verdict), "heads": heads}
        drawn: list[Callable[[Surface], Lines]] = [partial(score_table, replace(report, heads=chosen))]
        if definition is not None:
            from mhsa_cli.jobs.trained_run import score_prefix_matching  # torch comes with it

            found = score_prefix_matching(self._trained, self.maps.step)
            found = replace(found, heads=[head for head in found.heads if head.address in self.addresses])
            for one, score in zip(heads, found.heads, strict=True):
                one["olsson2022"] = score.prefix_matching
            document["olsson2022"] = asdict(found)
            drawn.append(partial(paper_table, found))

        if kept := [name for name in kept_names(chosen) if name not in map(short_score, self.own.scores)]:
            drawn.append(partial(own_score_table, chosen, kept))

        def draw(surface: Surface) -> Lines:
            return stacked(part(surface) for part in drawn)

        def parts() -> dict[str, Draw | None]:
            from mhsa_cli.renderers.figures.scores import lift_matrix  # matplotlib comes with it

            return {"lifts": lift_matrix(chosen)}

        return HeadTable(self.maps.step, f"{explain_model(report)}\n", draw, document, parts)

    def own_scores(self) -> HeadTable:
        """Make the table of the user's own scores that are asked for."""
        names = [short_score(name) for name in self.own.scores]
        heads = report_of(with_scores(self.folder, self.own, self.maps, self.step)).heads
        chosen = [head for head in heads if head.address in self.addresses]
        document = {
            name: [{"layer": h.layer, "head": h.head, **plain(h.own_scores[name])} for h in chosen] for name in names
        }

        def parts() -> dict[str, Draw | None]:
            from mhsa_cli.renderers.figures.ablations import own_score_bars  # matplotlib comes with it

            return {name: own_score_bars(chosen, name) for name in names}

        draw = partial(own_score_table, chosen, names)
        return HeadTable(self.maps.step, "", draw, {"own_scores": document}, parts)

    def circuits(self) -> HeadTable:
        """Make the table of what the weights compute."""
        from mhsa_cli.jobs.trained_run import compute_circuits  # torch comes with it

        found = compute_circuits(self._trained)
        found = replace(found, heads=[head for head in found.heads if head.address in self.addresses])
        report = self.maps.report if self.maps.step == self._trained.step else None
        return HeadTable(
            self._trained.step, "", partial(circuits_table, found, report=report), {"circuits": plain(found)}
        )

    def ablation(self, text: str) -> HeadTable:
        """Make the table of loss and accuracy with the heads in `text` ablated."""
        from mhsa_cli.jobs.trained_run import measure_ablation  # torch comes with it

        heads = read_addresses(text, self.maps, "--ablate")
        found, inputs = measure_ablation(self._trained, heads)
        names, step = [str(head) for head in heads], self._trained.step
        document = {"heads": names, "inputs": inputs, "step": step, "ways": [asdict(one) for one in found]}
        heading = f"ablation of {', '.join(names)} on {inputs}"

        def parts() -> dict[str, Draw | None]:
            from mhsa_cli.renderers.figures.ablations import ablation_bars  # matplotlib comes with it

            return {"ablation": ablation_bars(found)}

        return HeadTable(step, heading, partial(ablation_table, found), {"ablation": document}, parts)

    def patches(self, text: str) -> list[HeadTable]:
        """Make the tables of the paths and of the heads in `text`, each patched alone."""
        paths, heads = read_patches(text, self.maps, "--patch")
        from mhsa_cli.jobs.trained_run import measure_activations, measure_paths  # torch comes with it

        step, tables = self._trained.step, []
        if paths:
            effects = measure_paths(self._trained, paths)
            figures = [{**asdict(one), "path": str(one.path), "writer": str(one.writer)} for one in effects]
            figures = [
                {**one, "reader": str(path.reader or "logits")} for one, path in zip(figures, paths, strict=True)
            ]
            document = {"path_patching": {"step": step, "paths": figures}}
            heading = f"path patching on {self._patched_rows(effects[0].n_pairs)}"

            def paths_parts() -> dict[str, Draw | None]:
                from mhsa_cli.renderers.figures.ablations import path_bars  # matplotlib comes with it

                return {"paths": path_bars(effects)}

            tables.append(HeadTable(step, heading, partial(path_table, effects), document, paths_parts))
        if heads:
            found = measure_activations(self._trained, heads)
            document = {"activation_patching": {"step": step, "heads": [asdict(one) for one in found]}}
            heading = f"activation patching on {self._patched_rows(found[0].n_pairs)}"

            def heads_parts() -> dict[str, Draw | None]:
                from mhsa_cli.renderers.figures.ablations import activation_bars  # matplotlib comes with it

                return {"patches": activation_bars(found)}

            tables.append(HeadTable(step, heading, partial(activation_table, found), document, heads_parts))
        return tables

    def _patched_rows(self, n_pairs: int) -> str:
        return f"{plural(n_pairs, 'row')} of {self.maps.task}, each with a corrupted row"

    def lens(self) -> HeadTable:
        """Make the table of loss and accuracy after every layer."""
        from mhsa_cli.jobs.trained_run import measure_lens  # torch comes with it

        found = measure_lens(self._trained)
        heading = f"logit lens on {found.inputs}"

        def parts() -> dict[str, Draw | None]:
            from mhsa_cli.renderers.figures.scores import lens_plot  # matplotlib comes with it

            return {"lens": lens_plot(found)}

        document = {"logit_lens": asdict(found)}
        return HeadTable(self._trained.step, heading, partial(lens_table, found), document, parts)

    def direct(self) -> HeadTable:
        """Make the table of direct logits by query position."""
        from mhsa_cli.jobs.trained_run import measure_direct  # torch comes with it

        found = measure_direct(self._trained)
        chosen = {head: figures for head, figures in found.heads.items() if head in self.addresses}
        found = replace(found, heads=chosen)
        heads = [{"layer": head.layer, "head": head.head, "by_position": list(chosen[head])} for head in chosen]
        document = {"direct_logits": {**plain(replace(found, heads={})), "heads": heads}}
        heading = f"direct logits by position on {found.inputs}"

        def parts() -> dict[str, Draw | None]:
            from mhsa_cli.renderers.figures.scores import direct_matrix  # matplotlib comes with it

            return {"direct": direct_matrix(found)}

        return HeadTable(self._trained.step, heading, partial(direct_table, found), document, parts)
