"""Every picture on every kind of stream: no exception, no line too wide, no character or escape out of place."""

from __future__ import annotations

import io
import os
import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import pytest
from rich.cells import cell_len
from rich.text import Text

from mhsa_cli.records.sweep import ChunkPlan, ChunkProgress
from mhsa_cli.records.training import EvalRecord, StepRecord
from mhsa_cli.renderers.kit import console as consoles
from mhsa_cli.renderers.kit.text_lines import Lines
from tests.faults.client import ROOT
from tests.faults.row import Place, Row
from tests.faults.rows import drawn_records as drawn
from tests.faults.rows.pictures import RENDERERS

WIDTHS = ["", "1", "5", "20", "24", "33", "47", "60", "100", "120", "200", "100000"]  # "" is no COLUMNS: 80
ENCODINGS = ["utf-8", "ascii", "cp437", "latin-1"]
STREAMS: dict[str, dict[str, str]] = {  # the name says whether the stream is a terminal
    "pipe": {},
    "pipe, colour forced": {"FORCE_COLOR": "1"},
    "terminal of 256 colours": {"TERM": "xterm-256color"},
    "terminal of all colours": {"TERM": "xterm", "COLORTERM": "truecolor"},
    "terminal that is dumb": {"TERM": "dumb", "COLORTERM": "truecolor"},
    "terminal without colour": {"TERM": "xterm-256color", "NO_COLOR": "1"},
}
LIVE = ["training", "sweep at work"]
PICTURES = [*RENDERERS, *LIVE]
WITH_FIGURES = {"scores", "gaps", "head table", "ablations", "circuits", "comparison", "sweep", "bench", "table"}
# They hold names, addresses and paths, which may have to be typed: a pipe gets them as wide as they are, and on a
# terminal a line that is one word is not broken.
TYPED = {"head table", "scores", "gaps", "circuits", "comparison", "sweep", "grade", "grades", "verification", "table"}
OFFERED = ("next: ", "or: ", "wrote ", "a task where ")  # a command or a path, which is copied as one line
SGR = re.compile(r"\x1b\[([0-9;]*)m")
FIGURE = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
ROOMY = 100  # columns at which no figure is left out
GOLDEN = 40

# What is drawn on a real pseudo-terminal: columns, rows, TERM, and the command.
TERMINALS = [(columns, rows, term, argv) for columns, rows, term in ((20, 5, "xterm"), (81, 24, "xterm-256color"),
             (240, 60, "linux"), (53, 17, "dumb")) for argv in (["train", "--name", "t"], ["inspect-heads", "r"],
             ["curve", "r"], ["timeline", "r"])] + [(90, 30, "xterm-256color", ["timeline", "r", "--replay"]),
             (40, 12, "xterm", ["explain", "r"]), (132, 43, "xterm-256color", ["runs"])]  # fmt: skip


class Case(NamedTuple):
    """A stream and the pictures that are drawn on it, or the number of a real terminal."""

    width: str
    encoding: str
    stream: str
    shape: str
    pictures: tuple[str, ...]
    seed: int


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every width x encoding x stream x shape, two pictures each in turn, real terminals, and then drawn ones."""
    every = [(w, e, s, d) for w in WIDTHS for e in ENCODINGS for s in STREAMS for d in drawn.SHAPES]
    size = len(PICTURES)
    made = [
        Case(*one, (PICTURES[2 * at % size], PICTURES[(2 * at + 1) % size]), seed + at) for at, one in enumerate(every)
    ]
    made += [Case("", "", "golden files", "", (), 0)]
    made += [Case("", "", "pseudo-terminal", "", (), number) for number in range(len(TERMINALS))]
    yield from made[:count]
    draw = random.Random(seed)
    for _ in range(count - len(made)):
        width = str(draw.randint(16, 210))
        pictures = tuple(draw.sample(PICTURES, 2))
        yield Case(width, draw.choice(ENCODINGS), draw.choice(list(STREAMS)), draw.choice(drawn.SHAPES), pictures,
                   draw.randrange(10**9))  # fmt: skip


def every_stream_has_every_glyph(patch: pytest.MonkeyPatch) -> None:
    """The mutant: the encoding is not asked."""
    from mhsa_cli.renderers.kit.glyphs import FULL

    patch.setattr(consoles, "choose_glyphs", lambda *_: FULL)


class Stream(io.TextIOWrapper):
    """A stream that says of itself whether it is a terminal, and keeps what was written."""

    def __init__(self, encoding: str, terminal: bool) -> None:
        self.kept = io.BytesIO()
        super().__init__(self.kept, encoding=encoding, newline="", write_through=True)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def check(case: Case, place: Place) -> None:
    """Draw, and hold what was drawn and what was written to the laws."""
    if case.stream == "golden files":
        stored = list((ROOT / "tests/renderers/golden").glob("*.txt"))
        assert len(stored) >= GOLDEN and all(path.stat().st_size for path in stored)
        return
    if case.stream == "pseudo-terminal":
        on_a_terminal(*TERMINALS[case.seed], place)
        return
    environ = STREAMS[case.stream] | ({"COLUMNS": case.width} if case.width else {})
    with mock.patch.dict(os.environ, environ, clear=True):
        for name in case.pictures:
            drawn_on_a_stream(name, case)


def drawn_on_a_stream(name: str, case: Case) -> None:
    """Draw one picture on the case's stream, in its environment."""
    stream = Stream(case.encoding, case.stream.startswith("terminal"))
    console = consoles.make_console(file=stream)
    surface = consoles.surface_of(console)
    assert surface.width == max(20, min(200, int(case.width or 80)))
    made = drawn.Made(case.shape, case.seed if case.shape == "ordinary" else 0)
    picture = live(made, name, console, surface) if name in LIVE else RENDERERS[name](made, surface)
    held_to_the_laws(f"{name}:", picture, case, surface, made)
    at = len(stream.kept.getvalue())
    console.print(picture, crop=False)  # as a command does
    written = stream.kept.getvalue()
    escapes(f"{name}:", written[: at if surface.animate else None].decode(case.encoding), surface, name in LIVE)
    printed(f"{name}:", written[at:].decode(case.encoding), picture, case.encoding)


def held_to_the_laws(name: str, picture: Lines, case: Case, surface: Any, made: drawn.Made) -> None:
    """Not too wide, nothing that moves a cursor, only characters that the stream has, the figures that were given."""
    plain = picture.plain
    typed = name.rstrip(":") in TYPED
    for line in picture:
        whole = typed and (" " not in line.plain.strip(" ·.") or not surface.bounded)
        assert line.cell_len <= surface.width or whole, f"{name} {line.cell_len} columns, {surface.width} are there"
        assert line.plain.isprintable(), f"{name} {line.plain!r}"
        assert not line.style, f"{name} {line.plain!r} has a style that only spans can carry"
    if case.shape != "odd text":
        try:
            plain.encode(case.encoding)
        except UnicodeEncodeError as error:
            raise AssertionError(f"{name} {error} in {plain[error.start - 20 : error.end + 20]!r}") from None
    if name.rstrip(":") in WITH_FIGURES and case.shape not in ("long", "odd text"):
        cut = re.search(r"(?<![\w.])[-+]?\d[\d,.]*(…|\.\.(?![.\d]))", plain)
        assert cut is None, f"{name} {cut and cut.group()!r} is a part of a figure, that is another one, in\n{plain}"
    assert plain.strip() or case.shape == "nothing", f"{name} nothing was drawn"
    if case.shape == "ordinary" and surface.width >= ROOMY:
        shown = [float(text.replace(",", "")) for text in FIGURE.findall(plain)]
        for wanted in made.spots:
            most = 0.006 * max(1.0, abs(wanted))
            near = any(min(abs(one - wanted), abs(one / 100 - wanted)) <= most for one in shown)  # or as percents
            assert near, f"{name} {wanted} is not shown in\n{plain}"


def escapes(name: str, text: str, surface: Any, moves: bool) -> None:
    """Nothing but colours and weights of letters, and only where the stream may have them."""
    codes = SGR.findall(text)
    if not (moves and surface.animate):
        rest = SGR.sub("", text)
        assert "\x1b" not in rest and "\r" not in rest, f"{name} it moves the cursor: {rest!r}"
    if surface.depth == "none":
        numbers = {int(part) for code in codes for part in code.split(";") if part}
        allowed = {0, 1, 2, 3, 4, 22, 23, 24} if surface.animate else set()
        assert numbers <= allowed, f"{name} codes {numbers} where there is no colour"
        assert allowed or not codes, f"{name} escapes on a stream that has none"


def printed(name: str, text: str, picture: Lines, encoding: str) -> None:
    """What was printed is the picture, line for line."""
    found = [line.rstrip() for line in SGR.sub("", text).split("\n")]
    wanted = [line.plain.encode(encoding, "replace").decode(encoding).rstrip() for line in picture]
    assert found == [*wanted, ""], f"{name} {found} for {wanted}"


def live(m: drawn.Made, kind: str, console: Any, surface: Any) -> Lines:
    """Show a training or a sweep at work on a console; gives the picture that it would redraw."""
    from mhsa_cli.renderers.pictures.live import LiveTraining
    from mhsa_cli.renderers.pictures.live_sweep import LiveSweep

    now = iter(range(10**6))
    given: dict[str, Any] = {"clock": lambda: float(next(now))}
    if kind == "training":
        trained = lambda: (float(m.count()), float(next(now)))  # noqa: E731
        given |= {"levels": drawn.guess(m), "history": drawn.looks(m, "one"), "trained": trained}
        with LiveTraining(console, surface, total_steps=max(1, m.count()), **given) as view:
            for step in m.steps()[:8]:
                m.spots = [m.number()] if m.shape == "ordinary" else []
                view.add(StepRecord(step, *(m.spots or [m.number()]), m.share(), 5e-3))
                view.add(EvalRecord(step, m.number(), m.share()))
            view.say(m.text("a note"))
            return view.picture(surface.width, surface.height)
    with LiveSweep(console, surface, trials=max(1, m.count()), done=0, work=m.count(), slots=2, **given) as sweeping:
        for chunk in range(3):
            sweeping.begin(ChunkPlan(chunk, m.text("h=2"), 4, max(1, m.count())))
            for step in m.steps()[:6]:
                sweeping.add(ChunkProgress(chunk, step, [m.number() for _ in range(4)], 1.0, m.count(), 0.5))
        sweeping.end(0, 4)
        return sweeping.picture(surface.width, surface.height)


def on_a_terminal(columns: int, rows: int, term: str, argv: list[str], place: Place) -> None:
    """Run a command with a pseudo-terminal of this size under it."""
    sizes = ["epochs=2", "steps_per_epoch=20", "vocab_size=9", "seq_len=7", "d_model=12", "n_heads=3", "batch_size=5"]
    plain = place.server.run(["train", *sizes, "--name", "r"], place.path)
    assert plain.code == 0, plain.err
    env = {"TERM": term, "COLUMNS": "", "LINES": "", "NO_COLOR": ""}
    argv = argv + sizes if argv[0] == "train" else argv
    terminal = ["tests.faults.rows.observers:on_a_terminal", columns, rows]
    done = place.server.run(argv, place.path, [terminal, *place.mutant], env)
    assert done.code == 0, f"exit code {done.code}: {done.err[-500:]}"
    assert "Traceback" not in done.err and done.err.endswith("\n"), done.err[-500:]
    assert done.err.count("\x1b[?25l") == done.err.count("\x1b[?25h"), "the cursor stays hidden"
    if "\x1b[?25l" in done.err or term == "dumb":
        assert term != "dumb" or "\x1b" not in done.err, "a dumb terminal was sent escapes"
        return
    for line in SGR.sub("", done.err).replace("\r\n", "\n").split("\n"):
        size, copied = cell_len(Text(line).plain), line.startswith(OFFERED)
        assert size <= max(20, min(columns, 200)) or copied, f"{size} columns: {line}"


ROW = Row(
    fault="renders: 12 widths x 4 encodings x 6 streams x 10 shapes of data; golden files; real terminals",
    promise="P10",
    quick=2900,
    long=7900,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.renders:every_stream_has_every_glyph",
)
