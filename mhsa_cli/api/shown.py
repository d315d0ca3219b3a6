"""What a notebook draws and `print` writes: records with one line as their repr and a picture."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mhsa_cli.api.plot import File, file_of, maps_figure, page_of, written
from mhsa_cli.records.check import Grade
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.figures.sheet_options import HEADS_PARTS
from mhsa_cli.renderers.files.formats import to_fragment
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.glyphs import choose_glyphs
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.check import grade_picture
from mhsa_cli.renderers.pictures.check_words import faults_of
from mhsa_cli.renderers.pictures.heads import heads_picture
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import plural

if TYPE_CHECKING:
    from mhsa_cli.renderers.figures.sheet import PaperFigure

PAGE = 96  # columns of a picture in a notebook


class Shown:
    """Something with a picture: `print` writes it as text, a notebook draws it."""

    __slots__ = ()

    def _picture(self, surface: Surface) -> Lines:
        raise NotImplementedError

    def __str__(self) -> str:
        glyphs = choose_glyphs(getattr(sys.stdout, "encoding", None), os.environ)
        return self._picture(Surface(depth="none", glyphs=glyphs)).plain

    def _repr_html_(self) -> str:
        return to_fragment(self._picture(Surface(width=PAGE)), title=repr(self))


class InFolder(Shown):
    """Something that is kept in a folder of its own."""

    _folder: RunDir | SweepDir

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder.path

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self._folder.name


class ShownRecord(Shown):
    """A record of ours with a picture."""

    __slots__ = ()

    @classmethod
    def of(cls, record: Any) -> Self:
        """Show a record."""
        return cls(**{field.name: getattr(record, field.name) for field in fields(record)})


class ShownMaps(ShownRecord, HeadMaps):
    """Attention maps: `weights[layer][head][query][key]`, `tokens`, and on the task's rows the `report`."""

    __slots__ = ()

    def plot(
        self, path: File = None, *, only: str | None = None, width: str | float | None = None, theme: str = "light"
    ) -> PaperFigure:
        """Return a matplotlib Figure of all maps and of every head's effect on the loss; see `Run.plot`."""
        file, page = file_of(path), page_of(HEADS_PARTS, only, width, theme)
        return written(maps_figure(self, page), file, repr(self).strip("<>"))

    def __repr__(self) -> str:
        heads = plural(sum(map(len, self.weights)), "head")
        return f"<attention maps: {self.task}, {self.when}, {heads}, {plural(len(self.tokens), 'token')}>"

    def _picture(self, surface: Surface) -> Lines:
        return heads_picture(self, surface)


class ShownGrade(ShownRecord, Grade):
    """The grade of a block: its `verdict`, `faults`, `laws`, `detected` and `notes`."""

    __slots__ = ()

    def __repr__(self) -> str:
        faults = ", ".join(fault.id for fault in faults_of(self))
        return f"<grade: {self.verdict}{f' ({faults})' if faults else ''}, {self.block}>"

    def _picture(self, surface: Surface) -> Lines:
        return grade_picture(self, surface)
