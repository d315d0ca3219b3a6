"""The grid of a sweep: every cell equals `load_config` with its overrides; invalid cells are listed."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from mhsa_cli.config.dump import dump_sweep
from mhsa_cli.config.grid import MAX_TRIALS, Grid, expand
from mhsa_cli.config.load import load_config
from mhsa_cli.config.overrides import split_values
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.errors import UsageError

TEXT = """\
task: {name: copy, vocab_size: 30, seq_len: 14}
model:
  d_model: 24   # 1, 2, 3, 4, 6, 8, 12 and 24 divide it
  n_heads: 5    # wrong here, so every grid has to replace it
train: {seed: 70, epochs: 2, steps_per_epoch: 9}
"""


@pytest.fixture(name="file")
def file_fixture(tmp_path: Path) -> str:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT)
    return str(path)


def refused(*arguments: str, file: str | None = None, seeds: int = 2, skip_invalid: bool = False) -> str:
    with pytest.raises(UsageError) as caught:
        expand(file, arguments, seeds, skip_invalid=skip_invalid)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_every_cell_equals_load_config_with_its_overrides(file: str) -> None:
    grid = expand(file, ["n_heads=2,6,12", "epochs=4", "train.betas=[0.9, 0.99],[0.5,0.75]", "lr=1e-3,.25"], 3)
    axes = (["2", "6", "12"], ["[0.9, 0.99]", "[0.5,0.75]"], ["1e-3", ".25"])
    wanted = list(itertools.product(*axes))
    assert len(grid.cells) == len(wanted) == 12 and grid.trials == 36 and grid.invalid == ()
    for cell, (heads, betas, lr) in zip(grid.cells, wanted, strict=True):
        assert list(cell.overrides.items()) == [("model.n_heads", heads), ("train.betas", betas), ("train.lr", lr)]
        typed = [f"{key}={text}" for key, text in cell.overrides.items()] + ["train.epochs=4"]
        assert list(cell.configs) == [load_config(file, [*typed, f"train.seed={70 + i}"]) for i in range(3)]


def test_one_value_is_an_ordinary_override_and_none_is_the_file(file: str) -> None:
    grid = expand(file, ["n_heads=8", "seed=9", "grad_clip="], 2)
    assert [cell.overrides for cell in grid.cells] == [{}]
    assert list(grid.cells[0].configs) == [load_config(file, ["n_heads=8", f"seed={seed}"]) for seed in (9, 10)]
    assert expand(None, [], 1).cells[0].configs == (load_config(None),)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", [""]),
        ("a", ["a"]),
        ("1,2", ["1", "2"]),
        (" 1 , 2 ", ["1", "2"]),
        ("1,,2,", ["1", "", "2", ""]),
        ("[1,2],[3,[4,5]]", ["[1,2]", "[3,[4,5]]"]),
        ("{a: [1,2], b: 3},4", ["{a: [1,2], b: 3}", "4"]),
        ("'a,b',\"c,d\",e", ["'a,b'", '"c,d"', "e"]),
        ("'it''s, one',two", ["'it''s, one'", "two"]),
        ('"a\\",b",c', ['"a\\",b"', "c"]),
        ("it's,that's", ["it's", "that's"]),
        ("[']',1],2", ["[']',1]", "2"]),
        ("[1,2", ["[1,2"]),
        ("'1,2", ["'1,2"]),
        ("1],2", ["1]", "2"]),
    ],
)
def test_only_commas_on_top_split(text: str, items: list[str]) -> None:
    found = split_values(text)
    assert [item for _, item in found] == items
    assert all(text[at : at + len(item)] == item for at, item in found)


def test_split_and_join_are_inverse() -> None:
    chars = random.Random(3)
    for _ in range(500):
        text = "".join(chars.choice("ab1,[]{}'\" \\:") for _ in range(chars.randrange(14)))
        items = [item for _, item in split_values(text)]
        assert ",".join(items).replace(" ", "") == text.replace(" ", "")
        assert [item for _, item in split_values(",".join(items))] == items


@pytest.mark.parametrize(
    ("argument", "code", "col", "span"),
    [
        ("n_heads=1,,2", "list", 11, 1),
        ("n_heads=1,2,", "list", 13, 1),
        ("n_heads=,2", "list", 9, 1),
        ("n_heads=2, 4,2", "value-twice", 14, 1),
        ("lr=1e-3,0.001", "value-twice", 9, 5),
        ("lr=1,1.0", "value-twice", 6, 3),
        ("betas=[0.9,0.5],[.9,0.50]", "value-twice", 17, 9),
        ("train.seed=1,2", "list", 1, 10),
        ("seed=1,2", "list", 1, 4),
        ("betas=[0.9,0.5],[2", "syntax", 9, 1),
        ("model=1,2", "section", 1, 5),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused_at_its_place(argument: str, code: str, col: int, span: int) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(None, [argument], 2)
    assert [(f.code, f.col, f.span) for f in caught.value.problems] == [(code, col, span)]


def test_equal_values_are_quoted_as_they_were_typed() -> None:
    assert "`[.9,0.50]` is the same as `[0.9,0.5]`" in refused("betas=[0.9,0.5],[.9,0.50]")


@pytest.mark.parametrize(("first", "again"), [("n_heads=1,2", "model.n_heads=1,2"), ("lr=0.5", "lr= 0.5")])
def test_equal_values_given_twice_are_not_to_be_joined(first: str, again: str) -> None:
    other = f"{again.partition('=')[0]}=3"
    (same, joined) = (refused(first, later).splitlines()[-1] for later in (again, other))
    assert same != joined and f"`{first}`" in refused(first, again)


@pytest.mark.parametrize(
    ("argument", "written"),
    [
        ("train.lr=range(1,3)", "train.lr=1,2"),
        ("n_heads=range(1, 9, 3)", "n_heads=1,4,7"),
        ("n_heads=range(3)", "n_heads=0,1,2"),
        ("lr=(1e-3, 3e-3)", "lr=1e-3,3e-3"),
        ("lr=[1e-3,3e-3]", "lr=1e-3,3e-3"),
        ("model.norm={none,rmsnorm}", "model.norm=none,rmsnorm"),
        ("lr=linspace(0,1,5)", "train.lr=1e-3,3e-3"),
        ("lr=1,[2", "train.lr=1e-3,3e-3"),
        ("n_heads=range(99999)", "train.lr=1e-3,3e-3"),
        ("betas=(0.9,0.5),(0.5,0.7)", "betas=[0.9,0.95],[0.9,0.999]"),
    ],
)
def test_a_list_in_brackets_or_to_be_computed_is_refused_once(argument: str, written: str) -> None:
    told = refused(argument)
    assert told.count(f"{argument}: ") == 1 and written in told.splitlines()[-1]
    assert f"`{argument.partition('=')[2]}`" in told
    assert "--seeds" in refused("seed=range(5)")


def test_brackets_stay_where_they_belong_to_the_value(tmp_path: Path) -> None:
    text = tmp_path / "a (1) [2].txt"
    grid = expand(None, ["task.name=text", f"task.path={text}", "betas=[0.9, 0.5],[0.5,0.7]"], 1)
    assert [cell.configs[0].to_dict()["task"]["path"] for cell in grid.cells] == [str(text)] * 2
    assert refused("nothing=range(1,3)").count("unknown key") == 1


@pytest.mark.parametrize("argument", ["n_heads=,", "n_heads=2,,,4", "n_heads=,2,"])
def test_gaps_of_one_list_are_reported_once(argument: str) -> None:
    assert refused(argument).count("found a comma") == 1


def test_true_is_not_one() -> None:
    assert [cell.configs[0].model.bias for cell in expand(None, ["bias=true,false"], 1).cells] == [True, False]
    assert "1 of the grid's 2 combinations" in refused("bias=true,1")  # a wrong kind of value, not a duplicate


def test_all_problems_of_the_arguments_are_reported_at_once() -> None:
    told = refused("lr=1,,2", "n_heads=2", "model.n_heads=4", "seed=1,2", "nothing")
    for part in ("comma without", "already, by `n_heads=2`", "`train.seed` may not", "wanted KEY=VALUE"):
        assert part in told


def test_an_unknown_key_is_reported_once_for_all_values() -> None:
    told = refused("n_embd=8,16,32", "lr=1,2")
    assert told.count("`n_embd`") == 1 and "`d_model`" in told
    assert refused("train.nothing=5").count("unknown key") == 1


def test_invalid_cells_are_listed_under_their_reason(file: str) -> None:
    arguments = ["n_heads=2,5,8,7", "lr=1e-3,5e-3"]
    assert refused(*arguments, file=file).splitlines() == [
        "4 of the grid's 8 combinations cannot be trained",
        "  `model.d_model` (24) is not divisible by `model.n_heads` (5) (nearest n_heads that divide 24: 4 and 6)",
        "    model.n_heads=5 train.lr=1e-3",
        "    model.n_heads=5 train.lr=5e-3",
        "  `model.d_model` (24) is not divisible by `model.n_heads` (7) (nearest n_heads that divide 24: 6 and 8)",
        "    model.n_heads=7 train.lr=1e-3",
        "    model.n_heads=7 train.lr=5e-3",
        "  change the values, or add --skip-invalid to train the others",
    ]


def test_skip_invalid_leaves_them_out_and_hands_them_back(file: str) -> None:
    grid = expand(file, ["n_heads=2,5,8", "lr=1e-3,5e-3"], 2, skip_invalid=True)
    assert [list(cell.overrides.values()) for cell in grid.cells] == [
        ["2", "1e-3"], ["2", "5e-3"], ["8", "1e-3"], ["8", "5e-3"],
    ]  # fmt: skip
    assert [list(overrides.values()) for overrides, _ in grid.invalid] == [["5", "1e-3"], ["5", "5e-3"]]
    assert all("(24) is not divisible by `model.n_heads` (5)" in message for _, message in grid.invalid)


def test_a_grid_of_nothing_valid_is_an_error_even_then(file: str) -> None:
    told = refused("n_heads=5,7", file=file, skip_invalid=True).splitlines()
    assert told[0] == "2 of the grid's 2 combinations cannot be trained"
    assert "    model.n_heads=5" in told and "    model.n_heads=7" in told
    assert told[-1] == "  change the values: --skip-invalid would leave nothing to train"
    for arguments, skip in [(["n_heads=5,7"], False), (["n_heads=5"], True)]:
        assert "n_heads=5: `model.d_model` (24) is not div" in refused(*arguments, file=file, skip_invalid=skip)
    assert "c.yaml:4:12" in refused("lr=1,2", file=file)  # the file's own fault is shown in the file


def test_a_long_list_of_invalid_cells_is_cut(file: str) -> None:
    told = refused("n_heads=2,5", "epochs=" + ",".join(map(str, range(1, 81))), file=file)
    assert told.count("model.n_heads=5") == 50 and "... and 30 more cells" in told


@pytest.mark.parametrize("seeds", [0, -3])
def test_no_seeds_are_refused(seeds: int) -> None:
    assert f"--seeds: found `{seeds}`, wanted 1 or more" in refused("n_heads=2,4", seeds=seeds)


def test_too_many_trials_are_refused_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Grid:
        raise AssertionError("something was expanded")

    for name in ("read_axes", "read_section", "check", "read_file", "_seeded"):
        monkeypatch.setattr(f"mhsa_cli.config.grid.{name}", never)
    ten = ",".join(map(str, range(1, 11)))
    keys = ("lr", "weight_decay", "dropout", "epochs", "batch_size", "n_layers")
    told = refused(*(f"{key}={ten}" for key in keys), seeds=10, file="no such file")
    assert "10,000,000" in told and f"{MAX_TRIALS:,}" in told
    assert f"{MAX_TRIALS + 1:,}" in refused(seeds=MAX_TRIALS + 1)
    with pytest.raises(AssertionError):
        expand("no such file", [], MAX_TRIALS)


def test_ten_thousand_trials_read_the_file_once(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mhsa_cli.config import grid, overrides

    read: list[str] = []
    read_file, read_value = grid.read_file, overrides.read_value
    monkeypatch.setattr(grid, "read_file", lambda path: read.append(path) or read_file(path))
    monkeypatch.setattr(overrides, "read_value", lambda text, *rest: read.append(text) or read_value(text, *rest))
    found = expand(file, ["n_heads=2,4,8", "epochs=" + ",".join(map(str, range(1, 21)))], 167)
    assert found.trials == 3 * 20 * 167
    assert read.count(file) == 1 and len(read) == 1 + (3 + 1) + (20 + 1)  # a list's first value is read for its key


def test_seeds_end_where_numbers_do() -> None:
    grid = expand(None, [f"seed={2**63 - 2}"], 2)
    assert [config.train.seed for config in grid.cells[0].configs] == [2**63 - 2, 2**63 - 1]
    assert "passes the largest seed" in refused(f"seed={2**63 - 2}", seeds=3)


SWEPT = """\
task: {name: copy, vocab_size: 30, seq_len: 14}
model: {d_model: 24}
sweep:
  n_heads: [1, 2, 4]
  train.lr: {from: 1e-3, to: 1e-1, steps: 3, scale: log}
  seeds: 3
"""


@pytest.fixture(name="swept")
def swept_fixture(tmp_path: Path) -> str:
    path = tmp_path / "s.yaml"
    path.write_text(SWEPT)
    return str(path)


def test_a_section_of_a_file_is_the_grid_of_the_same_arguments(swept: str, tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(SWEPT.partition("sweep")[0])
    typed = expand(str(base), ["n_heads=1,2,4", "lr=1e-3..1e-1:3:log"], 3)
    grid = expand(swept, [])
    assert grid.cells == typed.cells and grid.trials == 27
    listed = expand(str(base), ["n_heads=1,2,4", "lr=1e-3,0.01,1e-1"], 3)
    assert [cell.configs for cell in listed.cells] == [cell.configs for cell in grid.cells]
    assert [list(cell.overrides.values()) for cell in grid.cells[:3]] == [["1", "1e-3"], ["1", "0.01"], ["1", "1e-1"]]


def test_arguments_come_before_the_file(swept: str) -> None:
    grid = expand(swept, ["lr=0.5", "n_heads=8,3", "dropout=0,0.5"], 2)
    assert [list(cell.overrides.values()) for cell in grid.cells] == [
        ["8", "0"],
        ["8", "0.5"],
        ["3", "0"],
        ["3", "0.5"],
    ]
    assert {config.train.lr for cell in grid.cells for config in cell.configs} == {0.5} and grid.trials == 8
    assert len(expand(swept, ["n_heads=4..8:2"]).cells) == 6


@pytest.mark.parametrize(
    "overrides", [[], ["n_heads=2,3"], ["dropout=0.0..0.5:3"], ["betas=[0, 0.9],[0,0.5]", "lr=0.5"]]
)
def test_a_grid_that_is_written_down_gives_itself(swept: str, overrides: list[str], tmp_path: Path) -> None:
    grid = expand(swept, overrides)
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump_sweep(grid.base.data, grid.sweep))
    again = expand(str(copy), [])
    assert [cell.configs for cell in again.cells] == [cell.configs for cell in grid.cells]
    assert again.sweep == grid.sweep and list(again.cells[0].overrides) == list(grid.cells[0].overrides)


@pytest.mark.parametrize(
    ("line", "code", "col"),
    [
        ("lr: 1e-3", "axis", 7),
        ("lr: []", "axis", 7),
        ("lr: {from: 1, to: 2}", "range", 7),
        ("lr: {from: 1, to: x, steps: 3}", "range", 21),
        ("lr: {from: 1, to: 2, steps: 2.5}", "range", 31),
        ("lr: {from: .nan, to: 2, steps: 3}", "range", 7),
        ("lr: {from: 1, to: .inf, steps: 3}", "range", 7),
        ("lr: {from: 1, to: 2, steps: 3, scale: lin}", "range", 41),
        ("lr: {from: 1, to: 2, step: 3}", "unknown-key", 24),
        ("lr: {from: 0, to: 2, steps: 3, scale: log}", "range", 7),
        ("n_layers: {from: 1, to: 4, steps: 3}", "range", 13),
        ("norm: {from: 1, to: 4, steps: 4}", "range", 9),
        ("lr: [1, 2, 1.0]", "value-twice", 14),
        ("n_head: [1, 2]", "unknown-key", 3),
        ("train.nothing: [1, 2]", "unknown-key", 3),
        ("name.nothing: [1, 2]", "unknown-key", 3),
        ("model: {n_heads: [1, 2]}", "section", 3),
        ("seed: [1, 2]", "list", 3),
        ("seeds: 0", "value", 10),
        ("seeds: [1, 2]", "value", 10),
        ("lr: [1, 010]", "number", 11),
        ("lr: [-1]", "value", 8),
        ("norm: [layer]", "value", 10),
        ("attention: [no]", "value", 15),
    ],
)
def test_problems_of_the_section_are_shown_in_the_file(line: str, code: str, col: int, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"model: {{d_model: 24}}\nsweep:\n  {line}\n")
    with pytest.raises(ConfigError) as caught:
        expand(str(path), [])
    assert [(f.file, f.code, f.line, f.col) for f in caught.value.problems] == [(str(path), code, 3, col)]


def test_one_setting_has_one_line_in_the_section(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("sweep:\n  lr: [1, 2]\n  dropout: 0.5\n  train.lr: [3]\n")
    with pytest.raises(ConfigError) as caught:
        expand(str(path), ["n_layers=1,,2"])
    assert [(f.code, f.line) for f in caught.value.problems] == [("axis", 3), ("set-twice", 4), ("list", 1)]
    path.write_text("sweep: [1, 2]\n")
    with pytest.raises(ConfigError) as caught:
        expand(str(path), [])
    assert [(f.code, f.line, f.col) for f in caught.value.problems] == [("section", 1, 8)]


@pytest.mark.parametrize(
    ("argument", "col"),
    [("lr=1..2", 4), ("lr=1..2:x", 4), ("n_heads=1..6:3", 9), ("lr=5,1..2:3", 4), ("model.norm=1..2:3", 12)],
)
def test_a_range_that_cannot_be_meant_is_refused_at_its_place(argument: str, col: int) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(None, [argument], 2)
    assert [(f.code, f.col) for f in caught.value.problems] == [("range", col)]


def test_two_dots_in_a_path_are_no_range(tmp_path: Path) -> None:
    text = tmp_path / "1..2:3"
    text.write_text("ab" * 99)
    grid = expand(None, ["task.name=text", f"task.path={tmp_path}/../{tmp_path.name}/1..2:3"], 1)
    assert len(grid.cells) == 1 and grid.sweep == {"seeds": 1}


def test_a_training_has_no_section_sweep(swept: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(swept, ["n_heads=2"])
    assert [(f.code, f.line, f.col) for f in caught.value.problems] == [("sweep", 3, 1)]


def test_a_missing_file_is_a_config_error() -> None:
    with pytest.raises(ConfigError) as caught:
        expand("no/such.yaml", ["n_heads=1,2"], 2)
    assert [fault.code for fault in caught.value.problems] == ["no-file"]
