"""`-o FILE`: a figure for a paper, or the picture of the terminal as a file; and the options of both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mhsa_cli.commands.options import flag, option
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.jobs.messages import tell
from mhsa_cli.renderers.figures.sheet_options import FORMATS, Page, Theme, inches, need_matplotlib, wanted_width
from mhsa_cli.renderers.files import ENDINGS, ending_of
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.runs.atomic import write_file_atomic
from mhsa_cli.text import either, escape

if TYPE_CHECKING:
    from mhsa_cli.renderers.figures.sheet import PaperFigure

PICTURE_WIDTH = 96
ANY = tuple(dict.fromkeys((*FORMATS, *ENDINGS)))


class Look(StrEnum):
    """What a file of a picture shows."""

    FIGURE = "figure"
    TERMINAL = "terminal"


@dataclass(frozen=True, slots=True)
class PictureFile:
    """A file to be written: a figure on a page, or without one the picture of the terminal."""

    path: Path
    page: Page | None


def _check_width(given: str | None) -> str | None:
    if given is not None and inches(given) is None:
        raise unwanted("--width", given, wanted_width())
    return given


def output_option(*films: str) -> Any:
    """Make the option that names the file of a picture; a replay's may also end as a film."""
    endings = either(f".{ending}" for ending in (*ANY, *films))

    def check(given: Path | None) -> Path | None:
        if given is not None and ending_of(given) not in (*ANY, *films):
            better = escape(given.with_suffix(".svg")) if given.name else "picture.svg"
            raise unwanted("--output", given, f"a name that ends in {endings}", f"for example: {better}")
        return given

    replay = "".join(f"; of a replay .{film}, which plays it" for film in films)
    return option(
        "--output, -o", "FILE", f"also write a picture: {either(f'.{e}' for e in ANY)}{replay}", callback=check
    )


OutputOption = Annotated[Path | None, output_option()]
AsOption = Annotated[
    Look | None,
    flag("--as", "in FILE: a figure (.pdf, .svg, .png; extra plots) or what the terminal shows (.html, .txt: always)"),
]
WidthOption = Annotated[
    str | None,
    option("--width", "WIDTH", f"width of the figure: {wanted_width()} [default: 5.5in]", callback=_check_width),
]
ThemeOption = Annotated[Theme | None, flag("--theme", "background of the figure [default: light]")]


def only_option(*parts: str) -> Any:
    """Make the option that chooses one part of a figure."""

    def check(given: str | None) -> str | None:
        if given is not None and given not in parts:
            raise unwanted("--only", given, either(parts))
        return given

    return option("--only", "PART", f"one part of the figure: {either(parts)} [default: all]", callback=check)


def picture_file(
    output: Path | None, look: Look | None, width: str | None, theme: Theme | None, only: str | None = None
) -> PictureFile | None:
    """Check what is asked of `-o`, and what it needs, before any work. Raises: UsageError."""
    asked = {"--as": look, "--width": width, "--theme": theme, "--only": only}
    given = [name for name, value in asked.items() if value is not None]
    if output is None:
        if given:
            raise UsageError(f"{given[0]} needs --output", "name the file: -o figure.pdf")
        return None
    ending = ending_of(output)
    name = escape(output)
    if look is Look.FIGURE and ending not in FORMATS:
        formats = either(f".{one}" for one in FORMATS)
        raise UsageError(f"--as figure: found {name}, wanted a name that ends in {formats}", "leave --as out")
    if look is Look.TERMINAL and ending not in ENDINGS:
        better = escape(output.with_suffix(".svg"))
        raise UsageError(f"--as terminal: {name} cannot show a terminal", f"-o {better} --as terminal, or a figure")
    if look is Look.TERMINAL or ending not in FORMATS:
        if others := [one for one in given if one != "--as"]:
            raise UsageError(f"{others[0]} is for figures, {name} shows a terminal", f"leave {others[0]} out")
        if ending == "png":
            from mhsa_cli.renderers.files.png import need_pillow

            need_pillow()
        return PictureFile(output, None)
    need_matplotlib([f"-o {escape(_for_terminal(output))} --as terminal"])
    inch = None if width is None else inches(width)
    plain = Page()
    return PictureFile(output, Page(inch or plain.width, theme or plain.theme, only))


def _for_terminal(output: Path) -> Path:
    """The name of a figure as that of a picture of the terminal: .svg where the ending has none, or needs Pillow."""
    if ending_of(output) == "png":
        from mhsa_cli.renderers.files.png import need_pillow

        with suppress(UsageError):
            need_pillow()
            return output
    return output.with_suffix(".svg")


def write_picture(
    picture: PictureFile | None,
    draw: Callable[[Surface], Lines],
    figure: Callable[[Page], PaperFigure],
    title: str,
) -> None:
    """Write a picture to the file of `--output`, if given: the figure, or what the terminal shows.

    The latter has a fixed width, all glyphs and, unless it is text, full colour. The file is reported on stderr,
    outside of any JSON.
    """
    if picture is None:
        return
    ending = ending_of(picture.path)
    if picture.page is None:
        from mhsa_cli.renderers.files.formats import RENDERERS

        lines = draw(Surface(width=PICTURE_WIDTH, depth="none" if ending == "txt" else "truecolor"))
        content = RENDERERS[ending](lines, title)
    else:
        from mhsa_cli.renderers.figures.sheet import to_bytes  # matplotlib comes with it

        content = to_bytes(figure(picture.page), ending, title)
    write_file_atomic(picture.path, content)
    tell(f"wrote {escape(picture.path)}")
