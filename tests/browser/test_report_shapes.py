"""Pages of a sweep, of an encoder-decoder, of pooled maps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Opened
from tests.browser.test_report_page import T, colors, overflow
from tests.renderers.reported import STEPS, run, runs, sweep

pytestmark = pytest.mark.browser
Open = Callable[..., Opened]


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_a_sweep_fits_its_window(opened: Open, width: int) -> None:
    assert overflow(opened(sweep(name="a-long-name-" * 12), width=width)) <= 0


def test_a_sweep_shows_its_settings_and_what_they_had(opened: Open) -> None:
    one = opened(sweep())
    assert one.page.locator(".band").count() == 2 and one.page.locator(".line.ghost").count() == 2
    assert "lr=0.01 is faster." in one.text(".claims")
    tables = dict(
        zip(one.page.locator(".part > h2").all_inner_texts(), one.page.locator(".part").all_inner_texts(), strict=True)
    )
    assert "step 41 (30 to 60), 1 of 4" in tables["Onsets"]
    assert "3 of 4 (10% to 90%)" in tables["Labels"] and "1 of 4 (10% to 90%)" in tables["Circuits"]


def test_a_trial_is_chosen_and_shown_whole(opened: Open) -> None:
    one = opened(sweep())
    trials = one.page.locator(".trial")
    assert one.page.locator(".show .about h2").inner_text() == "trial-1"
    trials.nth(1).click()
    assert one.page.locator(".show .about h2").inner_text() == "trial-2" and one.page.locator(".player").count() == 1
    one.page.locator(".trial").nth(1).blur()
    one.page.keyboard.press("ArrowLeft")  # of the trial that is shown alone
    assert one.text(".player .step") == f"step {STEPS[-2]} of 100"
    trials.nth(2).click()
    assert one.text(".trials + div") == "not finite" and one.page.locator(".map").count() == 0


def test_a_sweep_without_anything_finished(opened: Open) -> None:
    failed = {"run": None, "setting": "lr=1", "seed": 0, "why": "failed", "status": "failed", "error": "no steps"}
    empty = {"steps": [], "median": [], "low": [], "high": []}
    bare = {
        "name": "lr=1",
        "trials": 1,
        "finished": 0,
        "solved": None,
        "curve": empty,
        "median_loss": None,
        "accuracy": None,
    }
    one = opened(sweep(settings=[bare | {"onsets": [], "labels": [], "circuits": []}], shown=[failed], claims=[]))
    assert one.text(".trials + div") == "no steps"


def test_each_layer_of_an_encoder_decoder_has_its_own_part(opened: Open) -> None:
    whole = [
        {"role": "encoder", "queries": [0, 3], "keys": [0, 3]},
        {"role": "cross", "queries": [3, 5], "keys": [0, 3]},
    ]
    square = [[[0.5, 0.25, 0.25]] * 3] * 3
    wide = [[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]] * 3
    one = opened(runs(run(parts=whole, weights=[square, wide], frames=[], maps_shape=[[3, 3], [2, 3]])))
    assert len(one.pixels(0)) == 9 and len(one.pixels(3)) == 6
    assert all(pixel[3] == 255 for pixel in [*one.pixels(0), *one.pixels(3)])
    assert one.page.locator(".layer h3").all_inner_texts() == ["Layer 0 (encoder)", "Layer 1 (cross)"]
    assert one.page.locator(".head").nth(3).locator(".queries span").all_inner_texts() == ["7", "3"]


def test_pooled_maps_say_so(opened: Open) -> None:
    pooled = [[[[1.0], [0.5, 0.5], [0.2, 0.3, 0.5]]] * 3] * 2
    one = opened(runs(run(pool=2, weights=pooled, frames=[])))
    assert "2 × 2" in one.text(".maps-at") and len(one.pixels(0)) == 9
    one.page.locator(".map").first.focus()
    for key in ("ArrowRight", "ArrowRight"):
        one.page.keyboard.press(key)
    assert one.text("#status") == "L0.H0, query 4–4, key 4–4, largest weight 0.500 of 2 × 2"


def test_a_weight_that_is_not_finite_is_no_weight(opened: Open) -> None:
    broken = run(frames=[])
    broken["weights"][0][0][4][0] = None
    one = opened(runs(broken))
    expected = colors(0, 0, 1.0)
    expected[4 * T] = [208, 64, 64, 255]
    assert one.pixels(0) == expected
