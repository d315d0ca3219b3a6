from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import textwrap

import pytest

from mhsa_cli.renderers.kit.console import can_animate, color_depth, make_console, surface_of, terminal_size
from mhsa_cli.renderers.kit.glyphs import ASCII, BLOCKS, FULL, Glyphs, choose_glyphs

PICTURE = """
    from rich.text import Text
    from mhsa_cli.records.heads import HeadMaps, HeadSummary
    from mhsa_cli.records.training import Series
    from mhsa_cli.renderers.kit.console import make_console, surface_of
    from mhsa_cli.renderers.pictures.curve import Level, loss_curve
    from mhsa_cli.renderers.pictures.heatmap import head_maps
    console = make_console()
    surface = surface_of(console)
    console.print(loss_curve([Series("[/x] :smile: [n_heads]", range(9), [4.0 - i / 3 for i in range(9)])],
                             surface, levels=[Level(4.16, "guessing")]))
    maps = HeadMaps(3, "copy", ["a", "b"], [[[[1.0, 0.0], [0.5, 0.5]]]], [HeadSummary(0, 0, 1.0)])
    console.print(head_maps(maps, surface))
    console.print(Text("caf\\udce9 \\u65e5"))
"""
CLEAN = {"PATH": os.environ["PATH"], "TERM": "xterm-256color"}


def run(code: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env={**CLEAN, **environ}, capture_output=True, check=False)


def run_in_terminal(code: str, **environ: str) -> str:
    """Run with stdout on a pseudo-terminal and return what it wrote."""
    parent, child = pty.openpty()
    command = [sys.executable, "-c", textwrap.dedent(code)]
    process = subprocess.Popen(command, env={**CLEAN, **environ}, stdout=child, stderr=child, stdin=child)
    os.close(child)
    chunks = []
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(parent)
    assert process.wait() == 0, b"".join(chunks)
    return b"".join(chunks).decode("utf-8")


@pytest.mark.parametrize(
    ("environ", "tty", "wanted"),
    [
        ({"TERM": "xterm-256color"}, True, "256"),
        ({"TERM": "xterm-256color"}, False, "none"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, True, "truecolor"),
        ({"TERM": "xterm"}, True, "16"),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, True, "none"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, "none"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, True, "256"),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "1"}, False, "256"),
        ({"TERM": "xterm-256color", "FORCE_COLOR": ""}, False, "none"),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "0"}, False, "none"),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "0"}, True, "none"),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "1", "NO_COLOR": "1"}, True, "none"),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, False, "256"),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "3"}, False, "truecolor"),
        ({"TERM": "xterm-color", "JPY_PARENT_PID": "77"}, True, "truecolor"),
        ({"TERM": "xterm-color", "JPY_PARENT_PID": "77"}, False, "none"),
        ({"TERM": "xterm-color", "JPY_PARENT_PID": "77", "NO_COLOR": "1"}, True, "none"),
        ({}, True, "16"),
        ({}, False, "none"),
    ],
)
def test_colour_is_decided_by_this_table(environ: dict[str, str], tty: bool, wanted: str) -> None:
    assert color_depth(environ, tty) == wanted


@pytest.mark.parametrize(
    ("environ", "tty", "wanted"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "xterm", "FORCE_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm", "CI": "true"}, True, False),
        ({"TERM": "xterm", "CI": ""}, True, True),
        ({"TERM": "xterm", "JPY_PARENT_PID": "77"}, True, False),
        ({"TERM": "xterm", "COLAB_RELEASE_TAG": "r1"}, True, False),
    ],
)
def test_only_a_real_terminal_is_animated(environ: dict[str, str], tty: bool, wanted: bool) -> None:
    assert can_animate(environ, tty) is wanted


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (None, 80), ("0", 80), ("-5", 80), ("abc", 80), ("", 80), ("1", 20), ("5", 20), ("20", 20), ("53", 53),
        ("200", 200), ("100000", 200), ("9" * 5000, 200), ("１２", 80), ("²", 80), (" 90", 80),
    ],
)  # fmt: skip
@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_columns_never_print_nothing(
    columns: str | None, wanted: int, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"TERM": term} if columns is None else {"TERM": term, "COLUMNS": columns}
    assert terminal_size(io.StringIO(), environ)[0] == wanted
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    console = make_console(file=io.StringIO())
    assert console.width == wanted == surface_of(console).width
    console.print("hello")
    assert console.file.getvalue() == "hello\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize("lines", [None, "0", "-1", "x", "7"])
def test_lines_are_read_with_the_same_care(lines: str | None) -> None:
    environ = {} if lines is None else {"LINES": lines}
    assert terminal_size(io.StringIO(), environ)[1] == (7 if lines == "7" else 25)


def test_a_dumb_terminal_honours_columns_and_gets_no_escape() -> None:
    shown = run_in_terminal(PICTURE, TERM="dumb", COLUMNS="121", PYTHONUTF8="1")
    assert "\x1b" not in shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) in range(110, 122)


def test_a_terminal_gets_colour_and_a_pipe_none() -> None:
    assert "\x1b[" in run_in_terminal(PICTURE, PYTHONUTF8="1")
    piped = run(PICTURE, PYTHONUTF8="1").stdout
    assert piped and b"\x1b" not in piped and b"\r" not in piped


def test_forced_colour_on_a_pipe_is_colour_and_nothing_else() -> None:
    forced = run(PICTURE, PYTHONUTF8="1", FORCE_COLOR="1").stdout
    assert b"\x1b[" in forced and b"\r" not in forced and b"\x1b[?" not in forced


def test_forced_colour_does_not_make_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console = make_console(file=io.StringIO())
    surface = surface_of(console)
    assert not console.is_terminal and not surface.animate and surface.depth == "256"


def test_without_colour_a_terminal_gets_no_colour_code() -> None:
    shown = run_in_terminal(PICTURE, PYTHONUTF8="1", NO_COLOR="1")
    codes = {part.split("m")[0] for part in shown.split("\x1b[")[1:]}
    assert codes <= {"0", "1", "2"} and "100" in shown


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "cp437", "utf-8"])
def test_no_encoding_stops_a_picture(encoding: str) -> None:
    done = run(PICTURE, PYTHONIOENCODING=encoding, LC_ALL="C", PYTHONUTF8="0")
    assert done.returncode == 0 and done.stderr == b""
    text = done.stdout.decode(encoding)
    assert "[/x] :smile: [n_heads]" in text and "L0.H0" in text
    own = text.rsplit("caf", 1)[0]
    assert "?" not in own


@pytest.mark.parametrize(
    ("encoding", "term", "wanted"),
    [
        ("utf-8", "xterm", FULL),
        ("utf-8", "linux", BLOCKS),
        ("cp437", "xterm", BLOCKS),
        ("cp1252", "xterm", ASCII),
        ("ascii", "xterm", ASCII),
        (None, "xterm", ASCII),
        ("no-such-code", "xterm", ASCII),
    ],
)
def test_glyphs_are_those_the_stream_can_show(encoding: str | None, term: str, wanted: object) -> None:
    assert choose_glyphs(encoding, {"TERM": term}) is wanted


@pytest.mark.parametrize(("glyphs", "encoding"), [(FULL, "utf-8"), (BLOCKS, "cp437"), (ASCII, "ascii")])
def test_every_glyph_set_can_be_encoded_by_what_chooses_it(glyphs: Glyphs, encoding: str) -> None:
    texts = [value for field in glyphs.__slots__ if isinstance(value := getattr(glyphs, field), str)]
    assert all(text.encode(encoding).decode(encoding) == text for text in texts)
    cells = ("horizontal", "vertical", "corner", "tick_left", "tick_down", "baseline", "point", "cross", "dot")
    assert all(len(getattr(glyphs, field)) == 1 for field in cells)


def test_markup_and_emoji_are_text() -> None:
    out = io.StringIO()
    make_console(file=out).print("[/x] [red]x :smile: [n_heads]")
    assert out.getvalue() == "[/x] [red]x :smile: [n_heads]\n"


@pytest.mark.parametrize(
    "name",
    ["kit.console", "pictures.curve", "pictures.heatmap", "kit.table", "files.svg", "files.formats", "pictures.live"],
)
def test_renderers_import_nothing_heavy(name: str) -> None:
    heavy = "{'torch', 'typer', 'yaml', 'pydantic', 'numpy'}"
    live = "" if name == "pictures.live" else "assert 'rich.live' not in sys.modules"
    code = f"import sys, mhsa_cli.renderers.{name}\nassert not {heavy} & set(sys.modules)\n{live}"
    done = run(code)
    assert done.returncode == 0, done.stderr
