"""mhsa trace: a picture that fits its width, or one document."""

from __future__ import annotations

import pytest

from tests.commands.shell import mhsa


def test_the_picture_has_every_shape_and_every_check() -> None:
    said = mhsa("trace", "seq_len=5", "d_model=16", "n_heads=4")
    assert said.code == 0
    for words in (
        "(B, H, T, d_head) = (2, 4, 5, 4)",
        "(B, T, 3*D) = (2, 5, 48)",
        "2 = sqrt(d_head), not by 4 = sqrt(D)",
    ):
        assert words in said.out
    assert "FAIL" not in said.out and "gradient norm" in said.out
    assert "gradient norm" not in mhsa("trace", "--forward-only").out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_picture_fits_and_keeps_its_shapes(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = mhsa("trace", "seq_len=5", "d_model=16", "n_heads=4", "n_kv_heads=2", "n_layers=3", "positions=rope")
    assert max(map(len, said.out.splitlines())) <= width
    assert "(B, G, T, d_head) = (2, 2, 5, 4)" in said.out and "layers 1..2" in said.out


def test_json_is_one_document_with_all_layers() -> None:
    document = mhsa("trace", "--json", "n_layers=2", "--batch", "3").json
    assert set(document) >= {"steps", "checks", "parts", "parameters", "attention_parameters", "cache", "sizes", "loss"}
    assert {step["layer"] for step in document["steps"]} == {None, 0, 1}
    assert all(check["passed"] for check in document["checks"])
    assert document["sizes"]["B"] == 3


@pytest.mark.parametrize("arguments", [["n_heads=5"], ["--batch", "0"], ["positions=rop"]])
def test_what_cannot_be_traced_is_an_error_of_usage(arguments: list[str]) -> None:
    assert mhsa("trace", *arguments).code == 2
