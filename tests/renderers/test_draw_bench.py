"""The tables of `mhsa bench`, on hand-made records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mhsa_cli.records.bench import AttentionSpeed, BenchRecord, ImportSpeed, Machine, NotMeasured, StackSpeed, StepSpeed
from mhsa_cli.renderers.pictures.bench import bench_section, rate
from tests.renderers.drawn import golden, on

MACHINE = Machine("Some Processor 9000", 6, "cpu", None, "2.13.0", 1)
LESSON = {"batch_size": 16, "seq_len": 12, "d_model": 32, "n_heads": 4, "n_layers": 1, "d_mlp": 0}
MIDDLE = {"batch_size": 128, "seq_len": 64, "d_model": 48, "n_heads": 8, "n_layers": 2, "d_mlp": 192}
SECTIONS: list[list[BenchRecord]] = [
    [MACHINE],
    [
        StepSpeed("config", LESSON, 8384, 1, (0.99, 1.02, 1.05), 984.47, 189_019.2, True),
        StepSpeed("config", LESSON, 8384, 6, (40.1, 57.25, 80.0), 17.5, 3360.0, False),
        StepSpeed("middle", MIDDLE, 62_144, 1, (150.0, 155.0, 160.0), 6.45, 52_838.4, False),
        StepSpeed("middle", MIDDLE, 62_144, 6, (90.0, 93.0, 93.0), 10.75, 88_064.0, True),
    ],
    [
        StackSpeed(1, (0.98, 1.02, 1.07), 980.4),
        StackSpeed(16, (5.68, 5.82, 5.94), 2747.5),
        NotMeasured("stacks", "64 models", "they would hold about 9 GB"),
    ],
    [
        AttentionSpeed("fused", 64, (0.45, 0.47, 0.53), 0.106),
        AttentionSpeed("fused", 4096, (103.6, 104.4, 105.2), 6.93),
        AttentionSpeed("linear", 64, (0.85, 0.92, 0.98), None),
        AttentionSpeed("weights", 64, (0.35, 0.37, 0.41), 0.184),
        AttentionSpeed("weights", 4096, (93.3, 94.4, 95.6), 54.9),
        NotMeasured("attention", "linear, T=4096", "a call could take 16 s"),
    ],
    [ImportSpeed((1.04, 1.05, 1.12))],
]


def drawn(width: int, surface: str = "none") -> str:
    sections = [bench_section(section, on(width, surface)) for section in SECTIONS]
    assert all(section.columns <= width for section in sections)
    return "\n\n".join(section.plain for section in sections)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_tables_look_as_stored(width: int) -> None:
    golden(f"bench-{width}", drawn(width))


@pytest.mark.parametrize("width", [20, 30, 40])
def test_no_number_is_cut_at_few_columns(width: int) -> None:
    for section in SECTIONS[1:4]:
        text = bench_section(section, on(width, "none")).plain
        lines = text.splitlines()
        assert "…" not in " ".join(lines[2:]).split(), text  # all that is left of a number that was cut
        assert max(map(len, lines)) <= width
    attention = " ".join(bench_section(SECTIONS[3], on(40, "none")).plain.split())
    assert "64 0.470 0.920 0.370 4096 104 94.40" in attention and "hidden columns: MB " in attention


def test_the_tables_in_ascii() -> None:
    text = drawn(80, "ascii")
    assert text.isascii()
    assert text == drawn(80).replace("–", "-")


@pytest.mark.parametrize("width", [20, 33, 47, 200])
def test_no_width_is_overrun(width: int) -> None:
    for section in SECTIONS:
        assert bench_section(section, on(width, "none")).columns <= width


def test_a_gpu_is_named_and_needs_no_choice_of_threads() -> None:
    machine = replace(MACHINE, device="cuda", gpu="Some Card")
    assert "cuda (Some Card)" in bench_section([machine], on(80, "none")).plain
    one = [record for record in SECTIONS[1] if isinstance(record, StepSpeed) and record.threads == 1]
    assert "recommended" not in bench_section(one, on(80, "none")).plain


def test_a_section_of_which_nothing_was_measured_still_says_so() -> None:
    for section in ("steps", "stacks", "attention", "import_torch"):
        text = bench_section([NotMeasured(section, "it", "no time")], on(60, "none")).plain
        assert text.endswith("not measured: it (no time)")


def test_rates_have_three_digits() -> None:
    wanted = {0.01234: "0.0123", 6.4775: "6.48", 984.47: "984", 999.6: "1,000", 189_019.2: "189,000"}
    assert {value: rate(value) for value in wanted} == wanted
