"""A window that changes its size while a picture is redrawn: the new picture, once, and nothing of the old one."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.terminal import Screen, Terminal

# Draws once more for every line that it reads, and says what it drew in a file.
DRAWING = """
import sys, termios
from pathlib import Path
from mhsa_cli.renderers.kit.console import make_console, surface_of
{view}
quiet = termios.tcgetattr(0)
quiet[3] &= ~termios.ECHO
termios.tcsetattr(0, termios.TCSANOW, quiet)
print("printed before", flush=True)
with view:
    fill()
    for line in sys.stdin:
        if line == "end\\n":
            break
        elif line == "say\\n":
            view.say("a message")
        view.redraw()
        view.console.file.flush()
        Path(sys.argv[1]).write_text(view.picture(*view.console.size).plain)
print("printed after", flush=True)
"""
TRAINING = """
from mhsa_cli.records.training import StepRecord
from mhsa_cli.renderers.pictures.live import LiveTraining
from tests.renderers.drawn import maps
console = make_console(stderr=True)
view = LiveTraining(console, surface_of(console), total_steps=60, clock=lambda: 1.0, maps={maps})
def fill():
    for number in range(1, 31):
        view.add(StepRecord(number, 3.0 / number, 0.5, 5e-3))
"""
SWEEP = """
from mhsa_cli.records.sweep import ChunkPlan, ChunkProgress
from mhsa_cli.renderers.pictures.live_sweep import LiveSweep
console = make_console(stderr=True)
view = LiveSweep(console, surface_of(console), trials=12, done=0, work=12 * 60, slots=2, clock=lambda: 1.0)
def fill():
    view.begin(ChunkPlan(0, "n_heads=2", 6, 60))
    for step in range(0, 30, 5):
        view.add(ChunkProgress(0, step, [3.0 / (step + 1)] * 6))
"""
VIEWS = {
    "curve": TRAINING.format(maps="None"),
    "heads": TRAINING.format(maps="lambda: maps(12, 4, 2)"),
    "sweep": SWEEP,
}
SIZES = [(80, 24), (50, 24), (100, 24), (60, 20), (30, 20), (120, 40), (90, 12), (61, 33)]


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("name", VIEWS)
def test_a_resize_leaves_no_stale_row(name: str, wraps: bool, tmp_path: Path) -> None:
    drawn = tmp_path / "drawn"
    code = DRAWING.format(view=textwrap.dedent(VIEWS[name]))
    with Terminal(["-c", code, str(drawn)], *SIZES[0], wraps=wraps) as terminal:
        terminal.until(lambda text: "printed before" in text)
        for number, size in enumerate(SIZES):
            if number:
                terminal.resize(*size)
            drawn.unlink(missing_ok=True)
            terminal.type("say\n" if number == 3 else "draw\n")
            terminal.until(lambda _: drawn.exists() and bool(drawn.read_text()))
            picture = "\n".join(map(str.rstrip, drawn.read_text().split("\n")))
            shown = terminal.until(lambda text, picture=picture: text.endswith(picture))
            left = shown.removesuffix(picture).split()
            assert set(left) <= {"printed", "before", "a", "message"}  # where lines are cut, rows above go with the old
            if wraps and number < 3 and name != "heads":  # those fill the screen
                assert left == ["printed", "before"]
        terminal.type("end\n")
        assert terminal.wait() == 0
        assert terminal.screen.text.split("\n")[-1] == "printed after"
        assert "┤" not in terminal.screen.text


def test_the_screen_of_these_tests_wraps_and_joins_lines() -> None:
    screen = Screen(6, 3)
    screen.write("abcde\r\n12")
    screen.resize(3, 3)
    assert (screen.lines, screen.x, screen.y) == (["abc", "de", "12"], 2, 2)
    screen.resize(6, 3)
    assert (screen.lines, screen.x, screen.y) == (["abcde", "12"], 2, 1)
    screen.write("3456789")
    assert screen.lines == ["abcde", "123456", "789"]
    screen.write("\x1b[1A\x1b[2K\rx\n")
    assert screen.lines == ["abcde", "x", "789"]
    cut = Screen(6, 3, wraps=False)
    cut.write("abcde\r\n12")
    cut.resize(3, 3)
    assert (cut.lines, cut.x, cut.y) == (["abc", "12"], 2, 1)
