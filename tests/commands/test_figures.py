"""`-o` with a figure: its size, theme and parts; and what is refused before any work."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.commands.shell import SMALL, mhsa


def drawn(file: str) -> tuple[float, str]:
    """The width in inches of an SVG figure, and all that is written in it."""
    root = ElementTree.parse(file).getroot()
    return float(root.attrib["width"].removesuffix("pt")) / 72, " ".join("".join(root.itertext()).split())


COMMANDS = {
    "curve": ("curve tiny", ["loss (nats)", "chance"]),
    "curves": ("curve tiny tiny2 --linear", ["tiny2", "evaluation"]),
    "maps": ("inspect-heads tiny --only maps", ["L1.H2", "query", "weight"]),
    "heads": ("inspect-heads tiny --head L1.H0", ["L1.H0", "change of loss"]),
    "tokens": ("inspect-heads tiny --tokens 3,1", ["L0.H0", "key"]),
    "ablation": ("inspect-heads tiny --ablate L0.H1", ["uniform", "resample"]),
    "tables": ("inspect-heads tiny --scores --lens --direct", ["lift", "logit lens", "direct logit"]),
    "patch": ("inspect-heads tiny --patch L0.H0:logits,L0.H1", ["L0.H0:logits", "random writers", "L0.H1"]),
    "timeline": ("timeline tiny", ["lift", "L1.H2", "step"]),
    "target": ("timeline tiny --target previous --only lifts", ["lift on previous"]),
    "compare": ("compare tiny tiny2", ["tiny2", "L1.H2 - L", "cost"]),
    "evaluate": ("evaluate tiny seq_len=3,4", ["seq_len=3", "accuracy", "position"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_on_a_run_draws_a_figure_of_the_width_that_is_asked_for(name: str, tiny: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "--name", "tiny2", "train.seed=3").code == 0
    words, written = COMMANDS[name]
    given = [word.replace(",", " ") if before == "--tokens" else word
             for before, word in zip(["", *words.split()], words.split(), strict=False)]  # fmt: skip
    plain = mhsa(*(word for before, word in zip(["", *given], given, strict=False) if "--only" not in (before, word)))
    said = mhsa(*given, "-o", "a.svg", "--width", "84mm", "--theme", "dark")
    assert said.code == 0 and said.err.endswith("wrote a.svg\n") and said.out == plain.out, said.err
    width, text = drawn("a.svg")
    assert width == pytest.approx(8.4 / 2.54, abs=1e-4) and all(part in text for part in written), text
    assert "#151515" in Path("a.svg").read_text()
    assert mhsa(*given, "-o", "a.pdf").code == 0 and Path("a.pdf").read_bytes().startswith(b"%PDF")


def test_every_command_on_a_sweep_draws_a_figure(here: Path) -> None:
    said = mhsa("sweep", *SMALL, "n_heads=1,2", "--seeds", "6", "--name", "s", "-o", "s.svg")
    assert said.code == 0 and "wrote s.svg" in said.err
    first = Path("s.svg").read_bytes()
    assert mhsa("sweep", "show", "s", "-o", "s.svg").code == 0 and Path("s.svg").read_bytes() == first
    width, text = drawn("s.svg")
    assert width == 5.5 and all(
        part in text for part in ("n_heads=2", "median run, quartiles", "success", "final loss")
    )
    for command, part in (
        ("curve", "quartiles"), ("compare", "n_heads 2 - 1"),
        ("evaluate", "accuracy (median"),
    ):  # fmt: skip
        said = mhsa(command, "s", "-o", "a.svg")
        assert said.code == 0 and part in drawn("a.svg")[1], said.err
    said = mhsa("inspect-heads", "s", "-o", "a.svg")  # these models are too small for labels
    assert (said.code, said.out) == (2, "") and "shares" in said.err
    said = mhsa("sweep", "show", "s", "-o", "a.svg", "--only", "loss")
    assert said.code == 0 and "success" not in drawn("a.svg")[1] and "final loss" in drawn("a.svg")[1]
    assert mhsa("sweep", *SMALL, "--dry-run", "-o", "a.svg").code == 2


def test_the_picture_of_the_terminal_is_a_choice_and_needs_no_matplotlib(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for file, more in (("a.svg", ["--as", "terminal"]), ("a.html", []), ("a.txt", ["--as", "terminal"])):
        assert mhsa("inspect-heads", "tiny", "-o", file, *more).code == 0
        assert "attention maps of tiny" in Path(file).read_text("utf-8")
    for ending, way in (("svg", "-o x.svg --as terminal"), ("png", "-o x.png --as terminal"), ("pdf", "-o x.svg --as")):
        said = mhsa("curve", "no-such-run", "-o", f"x.{ending}")  # before any work
        assert (said.code, said.out) == (2, "")
        assert "pip install 'mhsa-cli[plots]'" in said.err and way in said.err
    for module in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, module, None)
    hint = mhsa("curve", "tiny", "-o", "x.png").err.rpartition("; or ")[2].split()
    assert hint == ["-o", "x.svg", "--as", "terminal"] and mhsa("curve", "tiny", *hint).code == 0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("--width 3in", "--output"),
        ("--theme dark", "--output"),
        ("--only maps", "--output"),
        ("--as figure", "--output"),
        ("-o a.pdf --as terminal", "a.svg"),
        ("-o a.txt --as figure", ".pdf"),
        ("-o a.html --width 3in", "--width"),
        ("-o a.svg --as terminal --theme dark", "--theme"),
        ("-o a.svg --width 3feet", "3feet"),
        ("-o a.svg --width 100in", "40in"),
        ("-o a.svg --only costs", "effects"),
        ("-o a.svg --theme blue", "light or dark"),
        ("-o a.svg --circuits", "--as terminal"),
        ("-o a.svg --scores --only maps", "--only"),
    ],
)
def test_what_does_not_go_together_is_refused_before_any_work(given: str, named: str, tiny: Path) -> None:
    said = mhsa("inspect-heads", "tiny", *given.split())
    assert (said.code, said.out) == (2, "") and named in said.err
    assert not [*Path().glob("a.*")]


def test_a_part_that_a_run_does_not_have_is_refused_with_those_it_has(tiny: Path) -> None:
    said = mhsa("timeline", "tiny", "-o", "a.svg", "--only", "onsets")
    assert (said.code, said.out) == (2, "") and "there is: curve, lifts" in said.err
