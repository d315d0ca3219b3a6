"""The explorer, driven by keys in Textual's own pilot: what each key does, and that all fits on the screen."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Footer, Static

from mhsa_cli.errors import RunError
from mhsa_cli.records.heads import HeadReport, HeadScore, Verdict
from mhsa_cli.records.report import RunFacts, RunReport
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.explorer import Evidence, Explored, Explorer, Listed, OneRun, RunTable
from mhsa_cli.renderers.pictures.curve import Level
from mhsa_cli.text import Head
from tests.renderers.drawn import COLOR, falling, golden, maps

LOSSES = (7.0, 5.0, 3.0, 2.0, 6.5, 4.0, 1.0, 0.25)  # of the 2^3 coalitions


def report(heads: int = 3, coalitions: Sequence[float] = LOSSES) -> HeadReport:
    scores = [
        HeadScore(0, number, {}, uniform_delta_nats=float(number), uniform_delta_se=0.1) for number in range(heads)
    ]
    return HeadReport(Verdict(True, 6.75, 0.1, 0.25, (), "64 rows"), scores, coalitions)


def explored(length: int = 11, heads: int = 3, layers: int = 1, coalitions: Sequence[float] = LOSSES) -> Explored:
    final = replace(maps(length, heads, layers), report=report(heads, coalitions) if layers == 1 else None)
    frames = [(replace(final, step=step, report=None), 4.0 - step / 100) for step in (0, 100, 250)]
    run = RunReport("one", RunFacts("finished"), (), [falling()], (), (), final)
    return Explored(run, [Level(4.16, "chance 4.16")], [*frames, (final, 0.003)])


def explore(keys: Callable[[Pilot[None]], Awaitable[None]], *, opened: Explored | None, size: tuple[int, int]) -> None:
    """Drive an explorer of two runs, the second of which cannot be read, with one of them opened or the table."""

    def open_run(name: str) -> Explored:
        if name == "two":
            raise RunError("two is damaged", "verify it")
        return explored()

    async def drive() -> None:
        app = Explorer(
            ("run", "loss"),
            [Listed("one", ["one", "0.1"]), Listed("two", ["t\x1bwo", "[red]0.2"])],
            open_run,
            COLOR,
            opened,
        )
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await keys(pilot)

    asyncio.run(drive())


def run_of(pilot: Pilot[None]) -> OneRun:
    assert isinstance(pilot.app.screen, OneRun)
    return pilot.app.screen


def screen_text(pilot: Pilot[None]) -> str:
    rows = ("".join(segment.text for segment in strip) for strip in pilot.app.screen._compositor.render_strips())
    return "\n".join(row.rstrip() for row in rows)


def test_the_loss_with_heads_uniform_is_that_of_the_coalition_of_the_others() -> None:
    every = {Head(0, number) for number in range(3)}
    assert report().loss_without(set()) == 0.25
    assert report().loss_without(every) == 7.0
    assert report().loss_without({Head(0, 0)}) == LOSSES[0b110] and report().loss_without({Head(0, 1)}) == LOSSES[0b101]
    assert report().loss_without({Head(0, 0), Head(0, 2)}) == LOSSES[0b010]
    alone = report(coalitions=())
    assert alone.loss_without({Head(0, 2)}) == 2.25 and alone.loss_without({Head(0, 1), Head(0, 2)}) is None


def test_keys_move_over_steps_and_heads_and_stop_at_the_ends() -> None:
    async def keys(pilot: Pilot[None]) -> None:
        run = run_of(pilot)
        seen = [(run.step, run.head)]
        for key in ("left", "right", "right", "home", "left", "end", "down", "down", "down", "up"):
            await pilot.press(key)
            seen.append((run.step, run.head))
        steps, heads = zip(*seen, strict=True)
        assert steps == (360, 250, 360, 360, 0, 0, 360, 360, 360, 360, 360)
        assert heads == (*[Head(0, 0)] * 7, Head(0, 1), Head(0, 2), Head(0, 0), Head(0, 2))

    explore(keys, opened=explored(), size=(80, 24))


def test_space_makes_heads_uniform_together_where_coalitions_are_known_else_one() -> None:
    async def together(pilot: Pilot[None]) -> None:
        run = run_of(pilot)
        await pilot.press("space", "down", "space")
        assert run.uniform == {Head(0, 0), Head(0, 1)}
        await pilot.press("space")
        assert run.uniform == {Head(0, 0)}
        await pilot.press("r")
        assert run.uniform == set()

    async def alone(pilot: Pilot[None]) -> None:
        run = run_of(pilot)
        await pilot.press("space", "down", "space")
        assert run.uniform == {Head(0, 1)}
        await pilot.press("space")
        assert run.uniform == set()

    explore(together, opened=explored(), size=(80, 24))
    explore(alone, opened=explored(coalitions=()), size=(80, 24))


def test_screens_open_and_close_and_a_run_that_cannot_be_read_leaves_the_table() -> None:
    async def keys(pilot: Pilot[None]) -> None:
        screens = []
        for key in ("down", "enter", "up", "enter", "w", "escape", "escape"):
            await pilot.press(key)
            await pilot.pause()
            screens.append(type(pilot.app.screen))
        assert screens == [RunTable, RunTable, RunTable, OneRun, Evidence, OneRun, RunTable]
        assert pilot.app.screen.query_one(DataTable).row_count == 2
        assert "[red]0.2" in screen_text(pilot)

    explore(keys, opened=None, size=(80, 24))


def test_only_the_chosen_head_is_marked_where_a_longer_name_begins_alike() -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("down")
        await pilot.pause()
        rows = pilot.app.screen._compositor.render_strips()
        marked = [segment.text for strip in rows for segment in strip if segment.style and segment.style.reverse]
        assert [text.strip() for text in marked if "L0.H" in text] == ["L0.H1"]

    explore(keys, opened=explored(11, 13, coalitions=()), size=(120, 40))


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (40, 16), (24, 10)])
@pytest.mark.parametrize("shape", [(11, 3, 1), (24, 4, 2), (64, 13, 1), (5, 1, 1)])
def test_every_part_lies_on_the_screen_whole(size: tuple[int, int], shape: tuple[int, int, int]) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("space", "left")
        await pilot.pause()
        screen = run_of(pilot)
        bottom = 0
        for part in (*(one for one in screen.query(Static) if one.display), screen.query_one(Footer)):
            assert part.region.y >= bottom and part.region.bottom <= size[1] and part.region.right <= size[0]
            bottom = part.region.bottom

    explore(keys, opened=explored(*shape, coalitions=()), size=size)


def test_a_run_on_60_columns_and_20_rows() -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("left", "down", "space")
        await pilot.pause()
        golden("explorer", screen_text(pilot))

    explore(keys, opened=explored(), size=(60, 20))


def test_a_run_that_diverged_opens() -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("left", "left")
        assert run_of(pilot).step == 100

    diverged = Series("train", [1, 2, 3], [4.0, math.inf, math.nan])
    found = explored()
    explore(keys, opened=replace(found, run=replace(found.run, series=[diverged])), size=(60, 20))


def test_a_run_without_maps_and_one_without_a_training_open() -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await pilot.press("left", "down", "space", "w", "r")
        assert run_of(pilot).head is None

    bare = RunReport("one", RunFacts("finished"), (), (), (), (), None, "the block returns no weights")
    explore(keys, opened=Explored(bare, (), ()), size=(60, 20))
