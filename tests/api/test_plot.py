"""Figures from Python are those of the commands, and refuse what is wrong before any work."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.figure
import pytest

import mhsa_cli as mhsa
from mhsa_cli.renderers.figures.sheet import to_bytes


def test_a_run_is_drawn_whole_or_in_part(tiny: mhsa.Run, tmp_path: Path) -> None:
    whole = tiny.plot(width="84mm", theme="dark")
    assert isinstance(whole, matplotlib.figure.Figure) and whole.get_figwidth() == pytest.approx(8.4 / 2.54)
    parts = [tiny.plot(only=part, width=3.3) for part in ("curve", "lifts", "context", "maps", "effects")]
    assert len(whole.axes) == sum(len(part.axes) for part in parts)
    assert sum(len(axes.images) for axes in parts[3].axes) == 6
    file = tmp_path / "a.pdf"
    assert tiny.plot(file, only="maps").axes and file.read_bytes().startswith(b"%PDF")
    assert whole._repr_png_().startswith(b"\x89PNG")
    other = tmp_path / "b.svg"
    parts[0].savefig(other)
    assert other.read_bytes() == to_bytes(parts[0], "svg", "") and b"<text" in other.read_bytes()


def test_maps_and_sweeps_are_drawn(tiny: mhsa.Run, place: Path) -> None:
    assert [len(axes.images) for axes in tiny.attention([3, 1, 4]).plot().axes].count(1) == 6
    settings = {"vocab_size": 9, "seq_len": 6, "d_model": 8, "epochs": 1, "steps_per_epoch": 6}
    found = mhsa.sweep("copy", settings, n_heads=[1, 2], seeds=2, quiet=True, runs=place / "sweeps")
    assert len(found.plot(only="loss").axes) == 1 and len(found.plot().axes) >= 3


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"only": "map"}, "maps"),
        ({"width": "3 feet"}, "40in"),
        ({"width": 0}, "1.5in"),
        ({"theme": "blue"}, "dark"),
        ({"path": "a.gif"}, ".pdf"),
    ],
)
def test_what_is_wrong_is_refused(given: dict[str, str], wanted: str, tiny: mhsa.Run) -> None:
    with pytest.raises(mhsa.MhsaError, match=wanted):
        tiny.plot(**given)


def test_without_matplotlib_the_extra_is_named(tiny: mhsa.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(mhsa.MhsaError) as caught:
        tiny.plot()
    assert caught.value.code == "no-matplotlib" and "mhsa-cli[plots]" in (caught.value.hint or "")
