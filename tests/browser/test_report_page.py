"""The page of a run in a browser: what slider, click and key change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mhsa_cli.renderers.kit.palette import viridis
from tests.browser.conftest import Opened
from tests.renderers.reported import CLEAN, STEPS, TOKENS, coalition, head, loss_at, maps, run, runs, weight
from tests.renderers.test_draw_report import HOSTILE

pytestmark = pytest.mark.browser
Open = Callable[..., Opened]
T = len(TOKENS)
LAST = len(STEPS) - 1


def colors(layer: int, number: int, part: float) -> list[list[int]]:
    """Return the pixels of a map by hand: viridis, and nothing on the future."""
    cells = [(q, k) for q in range(T) for k in range(T)]
    level = {cell: round(100 * round(weight(layer, number, *cell, part), 3)) for cell in cells}
    return [[0, 0, 0, 0] if k > q else [*viridis(level[q, k] / 100), 255] for q, k in cells]


def test_the_slider_moves_step_loss_lifts_maps_and_cursors_together(opened: Open) -> None:
    one = opened()
    cursor = one.page.locator(".loss .cursor")
    seen = []
    for at, step in enumerate(STEPS):
        one.step(at)
        assert one.text(".player .step") == f"step {step} of 100"
        assert one.text(".loss .key.train .value") == f"{loss_at(step - step % 5):.4f}"
        assert one.page.locator(".lift-value").all_inner_texts() == [
            f"{head(layer, number)['lifts'][at]:.2f}" for layer in range(2) for number in range(3)
        ]
        seen.append(float(cursor.get_attribute("x1") or "nan"))
    width = seen[-1] - seen[0]
    margin = float(one.page.locator(".loss .chart").get_attribute("width") or "nan") - seen[-1]
    assert 0 < margin < 20  # the last step is at the right end
    assert [round((x - seen[0]) / width, 3) for x in seen] == [step / 100 for step in STEPS]


def test_evaluations_are_points_at_their_steps(opened: Open) -> None:
    one = opened()
    found = one.page.locator(".loss .evaluation").evaluate_all("all => all.map(dot => Number(dot.getAttribute('cx')))")
    steps = [step for step, _ in run()["curve"]["eval"]]
    assert len(found) == len(steps) > 2
    wide = found[-1] - found[0]
    assert [round((x - found[0]) / wide, 3) for x in found] == [
        round((step - steps[0]) / (steps[-1] - steps[0]), 3) for step in steps
    ]


def test_a_figure_of_another_step_than_the_one_shown_says_so(opened: Open) -> None:
    one = opened()
    one.page.locator(".switch").nth(1).click()
    for at, step in enumerate(STEPS):
        one.step(at)
        evaluated = step - step % 50
        when = "" if evaluated == step else f" (step {evaluated})"
        assert one.text(".now-loss") == f"loss {loss_at(evaluated):.4f}{when}"
        cursor, dot = (one.page.locator(f".loss {place}") for place in (".cursor", ".dots circle:last-child"))
        assert (dot.get_attribute("cx") == cursor.get_attribute("x1")) is (evaluated == step)
        assert one.text(".now-off").endswith(" (step 100)") is (step != 100)


@pytest.mark.parametrize(("at", "part"), [(0, 0.0), (2, 0.1), (3, 0.1), (4, 0.6), (LAST, 1.0)])
def test_the_maps_are_those_of_the_last_frame(opened: Open, at: int, part: float) -> None:
    one = opened()
    one.step(at)
    assert one.pixels(1) == colors(0, 1, part)
    assert one.pixels(5) == colors(1, 2, part)


def test_a_run_measured_after_its_last_snapshot_ends_there(opened: Open) -> None:
    one = opened(runs(run(step=103, weights=maps(0.7))))
    assert one.text(".player .step") == "step 103 of 103" and one.pixels(1) == colors(0, 1, 0.7)
    one.step(LAST)
    assert one.text(".player .step") == "step 100 of 103" and one.pixels(1) == colors(0, 1, 1.0)


def test_switched_off_heads_show_the_measured_loss(opened: Open) -> None:
    """Click by click, in an order that is not that of the heads."""
    one = opened()
    off: list[int] = []
    assert one.text(".ablation .big") == f"{CLEAN:.4f}"
    for index in (4, 0, 3):
        one.page.locator(".switch").nth(index).click()
        off.append(index)
        assert one.text(".ablation .big") == f"{coalition(63 - sum(2**h for h in off)):.4f}"
        assert one.page.locator(".switch").nth(index).get_attribute("aria-pressed") == "true"
    one.page.locator(".switch").nth(0).click()
    assert one.text(".ablation .big") == f"{coalition(63 - 2**4 - 2**3):.4f}"
    assert "64 rows of copy, 5 tokens each" in one.text(".ablation")
    one.page.get_by_role("button", name="all heads on").click()
    assert one.text(".ablation .big") == f"{CLEAN:.4f}"


def test_without_coalitions_one_head_is_off_at_a_time(opened: Open) -> None:
    known = run()["ablation"] | {"coalitions": None, "singles": [[1.5, 0.1], None, [0.125, 0.1], None, None, None]}
    one = opened(runs(run(ablation=known)))
    switches = one.page.locator(".switch")
    assert switches.nth(1).is_disabled()
    switches.nth(0).click()
    switches.nth(2).click()
    assert one.text(".ablation .big") == f"{CLEAN + 0.125:.4f}"
    assert [switches.nth(i).get_attribute("aria-pressed") for i in (0, 2)] == ["false", "true"]


def test_nothing_is_switched_where_nothing_was_measured(opened: Open) -> None:
    one = opened(runs(run(ablation=None)))
    assert one.page.locator(".switch, .ablation").count() == 0


def test_keys_move_play_and_read_the_cells(opened: Open) -> None:
    one = opened()
    press = one.page.keyboard.press
    press("ArrowLeft")
    assert one.text(".player .step") == "step 60 of 100"
    press("ArrowLeft")
    press("ArrowRight")
    assert one.text(".player .step") == "step 60 of 100"
    one.step(LAST)
    press("Space")
    one.page.locator(".player .step", has_not_text="step 100 of 100").wait_for()
    press("Space")
    assert one.page.locator(".play").get_attribute("aria-label") == "Play"
    one.step(LAST)
    one.page.locator(".map").first.focus()
    for key in ("ArrowUp", "ArrowRight", "ArrowRight"):
        press(key)
    # From the last row's first cell.
    assert one.text("#status") == f"L0.H0, query 3 “{TOKENS[3]}”, key 2 “{TOKENS[2]}”, weight 0.000"
    assert one.text(".player .step") == "step 100 of 100"
    press("Escape")
    press("ArrowLeft")
    assert one.text(".player .step") == "step 60 of 100"


def test_every_map_and_control_has_a_name(opened: Open) -> None:
    page = opened().page
    assert page.get_by_role("img", name="Attention map of L1.H2, step 100").count() == 1
    assert page.locator("[aria-live], output").count() == 1
    for one in page.locator("button, select, input, [role=img]").all():
        assert (one.get_attribute("aria-label") or one.inner_text()).strip()


def test_a_cell_under_the_pointer_shows_tokens_and_weight(opened: Open) -> None:
    one = opened()
    box = one.page.locator(".map").nth(1).bounding_box()
    assert box is not None

    def hover(query: int, key: int) -> list[str]:
        one.page.mouse.move(box["x"] + box["width"] * (key + 0.5) / T, box["y"] + box["height"] * (query + 0.5) / T)
        return one.page.locator(".tip-box").nth(1).inner_text().splitlines()

    one.page.locator(".map").nth(1).scroll_into_view_if_needed()
    box = one.page.locator(".map").nth(1).bounding_box()
    assert hover(2, 1) == ["query 2 “9”", "key 1 “3”", "weight 1.000"]
    assert hover(1, 2)[-1] == "masked"
    one.step(2)
    assert hover(2, 1)[-1] == f"weight {round(100 * weight(0, 1, 2, 1, 0.1))}%"


def test_a_click_on_the_curve_goes_there(opened: Open) -> None:
    one = opened()
    chart = one.page.locator(".loss .chart")
    at = [float(one.page.locator(".loss .cursor").get_attribute("x1") or 0)]
    one.step(0)
    at.append(float(one.page.locator(".loss .cursor").get_attribute("x1") or 0))
    chart.click(position={"x": at[1] + 0.28 * (at[0] - at[1]), "y": 100})
    assert one.text(".player .step") == "step 30 of 100"


def test_the_target_of_the_lifts_can_be_chosen(opened: Open) -> None:
    one = opened()
    one.page.get_by_label("Target of the lifts").select_option("answer")
    assert set(one.page.locator(".lift-value").all_inner_texts()) == {"0.50"}


def test_figures_open_below_the_row_of_the_head(opened: Open) -> None:
    one = opened()
    panel = one.page.locator(".panel").nth(1)
    assert not panel.is_visible()
    one.page.get_by_role("button", name="Figures of L0.H1").click()
    boxes = [panel.bounding_box(), *(one.page.locator(".head").nth(i).bounding_box() for i in (0, 2))]
    tops = [box["y"] for box in boxes if box]
    assert "the long story of L0.H1" in panel.inner_text() and tops[1] == tops[2] < tops[0]


def test_arrows_are_drawn_and_said(opened: Open) -> None:
    one = opened()
    assert one.page.locator(".arrow.shown").count() == 2 and one.page.locator(".arrow.not-shown").count() == 0
    first, second = (" ".join(line.split()) for line in one.page.locator(".circuit li").all_inner_texts())
    assert first == "L0.H1 → L1.H0 + L1.H2, keys +1.25 ± 0.10 nats (random writers: up to 0.40): shown"
    assert second == "L0.H2 → logits +0.02 ± 0.10 nats (random writers: up to 0.30): not shown"


def test_names_and_texts_are_only_texts(opened: Open) -> None:
    heads = [head(0, 0) | {"name": one, "sentence": one, "why": one, "followed": one} for one in HOSTILE[:3]]
    content = run(
        HOSTILE[0], task=HOSTILE[1], sentences=HOSTILE, tokens=HOSTILE[:5], heads=heads, shape=[1, 3],
        checks=HOSTILE[2],
        facts=[[one, one] for one in HOSTILE], levels=[[HOSTILE[2], 2.0]], arrows=[], maps_shape=[[T, T]],
    )  # fmt: skip
    one = opened(runs(content), width=360)
    assert one.text("h1") == HOSTILE[0]
    assert one.page.evaluate("document.querySelectorAll('img').length") == 0
    assert one.page.evaluate("document.querySelectorAll('script').length") == 3
    assert overflow(one) <= 0


def overflow(one: Opened) -> float:
    return float(one.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_the_page_fits_its_window(opened: Open, width: int) -> None:
    long = {"name": "a-very-long-name-of-a-run-" * 6, "tokens": ["a long token"] * T}
    heads = [head(0, 1) | {"name": f"L0.H{number}", "head": number} for number in range(16)]
    weights = [[maps(1.0)[0][1]] * len(heads)]
    many = run(heads=heads, shape=[1, len(heads)], weights=weights, frames=[], maps_shape=[], ablation=None, arrows=[])
    for document in (runs(), runs(run(), run(**long)), runs(many)):
        one = opened(document, width=width)
        for button in one.page.locator(".opener").all():
            button.click()
        assert overflow(one) <= 0


def test_playing_moves_nothing_on_the_page(opened: Open) -> None:
    one = opened()
    parts = "[...document.querySelectorAll('.head, figure, h2, .player, .now span')]"
    places = f"{parts}.map(one => one.getBoundingClientRect()).map(box => [box.x, box.y])"
    seen: list[Any] = []
    for at in range(len(STEPS)):
        one.step(at)
        seen.append(one.page.evaluate(places))
    assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_the_readers_and_can_be_changed(opened: Open, scheme: str) -> None:
    one = opened(color_scheme=scheme)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    own, pixels = one.page.evaluate(ground), one.pixels(0)
    seen = {}
    for _ in range(2):
        one.page.locator(".theme").click()
        seen[one.text(".theme")] = one.page.evaluate(ground)
    assert seen["theme: light"] != seen["theme: dark"] and seen[f"theme: {scheme}"] == own
    assert one.pixels(0) == pixels


def test_print_shows_every_map_and_no_control(opened: Open) -> None:
    one = opened(color_scheme="dark")
    one.page.emulate_media(media="print")
    assert all(one.page.locator(".map").nth(i).is_visible() for i in range(6))
    assert not any(button.is_visible() for button in one.page.locator("button, select, input").all())
    assert one.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert one.page.pdf().startswith(b"%PDF")


def test_less_motion_is_still_played(opened: Open) -> None:
    one = opened(reduced_motion="reduce")
    one.page.locator(".play").click()
    one.page.locator(".player .step", has_not_text="step 0 of 100").wait_for()


def test_two_runs_move_with_one_slider(opened: Open) -> None:
    short = run(
        "run-b",
        step=30,
        steps=STEPS[:4],
        frames=[one for one in run()["frames"] if one["step"] <= 30],
        in_context=[None] * 4,
    )
    short["curve"] = {"train": [[0, 4.0], [30, 1.0]], "eval": []}
    one = opened(runs(run(), short), width=1400)
    assert one.page.locator(".player").count() == 1
    assert one.text(".now-loss") == f"loss {loss_at(100):.4f} | 1.0000"
    one.step(0)
    assert one.text(".now-loss") == f"loss {loss_at(0):.4f} | 4.0000"
    assert one.pixels(0) == one.pixels(6) == colors(0, 0, 0.0)
    boxes = [one.page.locator(".run").nth(i).bounding_box() for i in range(2)]
    assert boxes[0] and boxes[1] and boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] < boxes[1]["x"]
    one.page.locator(".switch").nth(7).click()
    assert one.page.locator(".ablation .big").all_inner_texts() == [f"{CLEAN:.4f}", f"{coalition(63 - 2):.4f}"]


def test_a_model_without_a_training_is_shown_as_it_is(opened: Open) -> None:
    made = run(
        origin="gpt2.safetensors",
        step=None,
        steps=[],
        frames=[],
        in_context=[],
        maps_shape=[],
        curve={"train": [], "eval": []},
    )
    one = opened(runs(made))
    assert one.page.locator(".player, .loss, .lifts").count() == 0
    one.page.keyboard.press("ArrowLeft")
    one.page.keyboard.press("Space")
    assert one.pixels(1) == colors(0, 1, 1.0)


def test_a_run_without_maps_says_why(opened: Open) -> None:
    one = opened(
        runs(
            run(
                heads=[],
                weights=[],
                tokens=[],
                shape=[0, 0],
                frames=[],
                maps_shape=[],
                ablation=None,
                arrows=[],
                sentences=["No maps."],
            )
        )
    )
    assert one.page.locator(".map").count() == 0 and one.text(".headline") == "No maps."
    one.step(1)
    assert one.text(".player .step") == "step 4 of 100"
