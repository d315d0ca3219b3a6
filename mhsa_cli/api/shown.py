"""What a notebook draws and `print` writes: records with one line as their repr and a picture."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from typing import Any

from mhsa_cli.records.check import Grade
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.files.formats import to_fragment
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.glyphs import choose_glyphs
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.check import grade_picture
from mhsa_cli.renderers.pictures.check_words import faults_of
from mhsa_cli.renderers.pictures.heads import heads_picture
from mhsa_cli.text import plural

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


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


class ShownMaps(Shown, HeadMaps):
    """Attention maps: `weights[layer][head][query][key]`, `tokens`, and on the task's rows the `report`."""

    __slots__ = ()

    @classmethod
    def of(cls, maps: HeadMaps) -> ShownMaps:
        """Show a record."""
        return cls(**_values(maps))

    def __repr__(self) -> str:
        heads = plural(sum(map(len, self.weights)), "head")
        return f"<attention maps: {self.task}, step {self.step}, {heads}, {plural(len(self.tokens), 'token')}>"

    def _picture(self, surface: Surface) -> Lines:
        return heads_picture(self, surface)


class ShownGrade(Shown, Grade):
    """The grade of a block: its `verdict`, `faults`, `laws`, `detected` and `notes`."""

    __slots__ = ()

    @classmethod
    def of(cls, grade: Grade) -> ShownGrade:
        """Show a record."""
        return cls(**_values(grade))

    def __repr__(self) -> str:
        faults = ", ".join(fault.id for fault in faults_of(self))
        return f"<grade: {self.verdict}{f' ({faults})' if faults else ''}, {self.block}>"

    def _picture(self, surface: Surface) -> Lines:
        return grade_picture(self, surface)
