"""mhsa trace: a picture that fits its width, or one document."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.shell import mhsa, tree


def test_the_picture_has_every_shape_and_every_check() -> None:
    said = mhsa("trace", "seq_len=5", "d_model=16", "n_heads=4")
    assert said.code == 0
    for words in (
        "(B, H, T, d_head) = (2, 4, 5, 4)",
        "(B, T, 3·D) = (2, 5, 48)",
        "PASS  scores are divided by 2 = sqrt(d_head), not by 4 = sqrt(D):",
        "PASS  1,088 attention parameters = 4·D² + 4·D",
    ):
        assert words in said.out
    assert "FAIL" not in said.out and "gradient norm" in said.out
    assert "gradient norm" not in mhsa("trace", "--forward-only").out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_picture_fits_and_keeps_its_shapes(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = mhsa("trace", "seq_len=5", "d_model=16", "n_heads=4", "n_kv_heads=2", "n_layers=3", "positions=rope")
    *picture, _, offered = said.out.splitlines()  # a command is never cut
    assert max(map(len, picture)) <= width
    assert offered.endswith("mhsa train seq_len=5 d_model=16 n_heads=4 n_kv_heads=2 n_layers=3 positions=rope")
    assert "(B, G, T, d_head) = (2, 2, 5, 4)" in said.out and "layers 1..2" in said.out


def test_json_is_one_document_with_all_layers() -> None:
    document = mhsa("trace", "--json", "n_layers=2", "--batch", "3").json
    told = {"task", "attention", "positions", "seed", "n_layers", "sizes", "steps", "flops", "bytes", "loss", "checks"}
    assert set(document) == told | {"parts", "parameters", "attention_parameters", "attention_formula", "cache", "init"}
    assert {step["layer"] for step in document["steps"]} == {None, 0, 1}
    measured = {"dtype", "flops", "bytes", "mean", "std"}
    assert set(document["steps"][0]) == measured | {
        "part",
        "layer",
        "name",
        "how",
        "symbols",
        "shape",
        "data",
        "strides",
    }
    assert all(check["passed"] is True and set(check) == CHECK for check in document["checks"])
    assert set(document["cache"]) == {"grows", "bytes_per_token", "bytes_at_max", "all_heads_bytes", "max_seq_len"}
    assert document["sizes"] == {"B": 3, "T": 12, "D": 32, "H": 4, "d_head": 8, "V": 64}


CHECK = {"name", "passed", "figure", "text"}


def test_a_failed_check_is_drawn_and_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from mhsa_cli.core.model import attention

    monkeypatch.setattr(attention, "attention_scores", lambda q, k, bias=None: q @ k.transpose(-2, -1))
    said = mhsa("trace")
    assert said.code == 1 and "error: a check failed" in said.err and "Traceback" not in said.err
    assert "FAIL  scores are divided by 1, wanted 2.828 = sqrt(d_head)" in said.out
    said = mhsa("trace", "--json")
    assert said.code == 1 and not all(check["passed"] for check in said.json["checks"])


def test_rows_are_those_of_a_training_batch() -> None:
    said = mhsa("trace", "--batch", "17")
    assert said.code == 2 and "--batch: found `17`, wanted 1 to 16" in said.err and "train.batch_size=17" in said.err
    assert mhsa("trace", "--json", "batch_size=1", "--forward-only").json["sizes"]["B"] == 1


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437"])
def test_encodings_without_our_signs(encoding: str) -> None:
    said = mhsa("trace", "n_kv_heads=2", encoding=encoding)
    assert said.code == 0 and "?" not in said.out and "2*D*D + 2*D*G*d_head" in said.out


def test_no_folder_is_touched(here: Path) -> None:
    before = tree(here)
    assert mhsa("trace", "--config", "tiny.yaml").code == 0
    assert tree(here) == before


@pytest.mark.parametrize("arguments", [["n_heads=5"], ["--batch", "0"], ["positions=rop"], ["--config", "no.yaml"]])
def test_what_cannot_be_traced_is_an_error_of_usage(arguments: list[str]) -> None:
    assert mhsa("trace", *arguments).code == 2
