"""Pictures as files: SVG, HTML, PNG, text; as a film, GIF."""

from pathlib import Path

ENDINGS = ("svg", "html", "png", "txt")  # the keys of `formats.RENDERERS`, for help that loads none of them
FILM = "gif"


def ending_of(path: Path) -> str:
    """Return the ending of a file's name, which is its format, without the dot."""
    return path.suffix.lower().removeprefix(".")
