"""mhsa compare: two runs beside each other, and an answer also where their heads cannot be matched."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from mhsa_cli.renderers.pictures.compare import ONE_SEED_EACH
from tests.commands.shell import codes_without_torch, facts, mhsa, tree, without_hashes

OTHER = ["--config", "tiny.yaml", "--name", "other"]


@pytest.fixture(scope="module")
def trained_other(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second run, with two heads a layer and another seed, trained once; tests get copies of it."""
    place = tmp_path_factory.mktemp("other")
    config = ["--config", trained / "tiny.yaml", "--runs", place, "--name", "other"]
    assert mhsa("train", *config, "n_heads=2", "train.seed=3").code == 0
    return place / "other"


@pytest.fixture
def other(tiny: Path, trained_other: Path) -> Path:
    """A copy of that run beside the tiny one."""
    shutil.copytree(trained_other, "runs/other")
    return Path("runs/other")


def test_two_runs_beside_each_other(tiny: Path, other: Path) -> None:
    before = tree(Path("runs"))
    said = mhsa("compare", "tiny", "other")
    assert said.code == 0 and said.err == ""
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[:3] == [["setting", "tiny", "other"], ["model.n_heads", "3", "2"], ["train.seed", "8", "3"]]
    one, two = facts(tiny), facts(other)
    assert ["eval", "loss", *(f"{run['final']['eval_loss']:.4f}" for run in (one, two))] in lines
    assert ["accuracy", *(f"{run['final']['eval_accuracy']:.1%}" for run in (one, two))] in lines
    assert ["steps", "10", "10"] in lines
    for text in (
        "loss (nats), log scale",
        "chance 2.40",
        "32 rows of shift,",
        "unmatched in tiny: ",
        "next: mhsa inspect-heads other",
    ):
        assert text in said.out, text
    assert tree(Path("runs")) == before


def test_the_document_has_what_the_picture_has(other: Path) -> None:
    document = mhsa("compare", "tiny", "other", "--json").json
    assert set(document) == {"runs", "differences", "final", "matches"}
    assert document["runs"] == ["runs/tiny", "runs/other"] and document["differences"]["model.n_heads"] == [3, 2]
    info = facts(other)
    assert document["final"][1] == {
        "run": "runs/other",
        "status": "finished",
        "eval_loss": info["final"]["eval_loss"],
        "eval_accuracy": info["final"]["eval_accuracy"],
        "seconds": info["seconds"],
        "steps": 10,
        "parameters": info["parameters"],
    }
    matches = document["matches"]
    figures = {"cost", "status", "null_cost", "p_value", "draws", "untested"}
    assert set(matches) == {"pairs", "unmatched_first", "unmatched_second", "inputs", *figures}
    assert len(matches["pairs"]) == 4 and len(matches["unmatched_first"]) == 2 and matches["unmatched_second"] == []
    seconds = sorted(pair["second"] for pair in matches["pairs"])
    assert seconds == ["L0.H0", "L0.H1", "L1.H0", "L1.H1"]
    assert matches["cost"] == pytest.approx(sum(pair["cost"] for pair in matches["pairs"]) / 4)
    assert 0 < matches["cost"] < 1 and 0 < matches["null_cost"] < 1 and matches["p_value"] >= 1 / 40
    assert (matches["draws"], matches["untested"]) == (39, None) and matches["status"] in ("shown", "not shown")


def test_a_run_is_equal_to_itself(tiny: Path) -> None:
    matches = mhsa("compare", "tiny", tiny, "--json").json["matches"]
    assert all(pair["first"] == pair["second"] and pair["cost"] == 0 for pair in matches["pairs"])
    assert len(matches["pairs"]) == 6 and matches["p_value"] == 1 / 40
    said = mhsa("compare", "tiny", "tiny")
    assert said.code == 0 and "model.n_heads" not in said.out and "mean cost 0.00" in said.out
    assert said.out.count("tiny eval") == 1  # one line, not two over each other


def test_a_copy_in_another_place_is_called_by_its_path(tiny: Path) -> None:
    shutil.copytree(tiny, "kept/tiny")
    said = mhsa("compare", "tiny", "kept/tiny")
    assert said.code == 0 and "runs/tiny" in said.out and "next: mhsa inspect-heads kept/tiny" in said.out


@pytest.mark.parametrize(("given", "more"), [([], ""), (["tiny"], ""), (["tiny"] * 3, "mhsa curve RUN...")])
def test_two_runs_are_wanted(given: list[str], more: str, tiny: Path) -> None:
    said = mhsa("compare", *given)
    assert (said.code, said.out) == (2, "")
    assert said.code == 2 and "mhsa compare RUN RUN" in said.err
    assert more in said.err and ("curve" in said.err) == bool(more)
    assert mhsa("compare", "tiny", "none").code == 4


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["vocab_size=13"], "the vocabularies differ (11 and 13 ids)"),
        (["seq_len=1"], "in a row of one token every head attends to that token"),
    ],
)
def test_where_heads_cannot_be_matched_the_rest_is_compared_without_torch(
    settings: list[str], reason: str, tiny: Path
) -> None:
    assert mhsa("train", *OTHER, *settings, "epochs=0").code == 0
    said = mhsa("compare", "tiny", "other")
    text = " ".join(said.out.split())
    assert said.code == 0 and f"heads not matched: {reason}" in text
    assert "eval loss" in text and "log scale" in text and "mean cost" not in text
    document = mhsa("compare", "tiny", "other", "--json").json
    assert document["matches"] is None and document["matches_note"].startswith(reason)
    assert codes_without_torch(["compare", "tiny", "other"]) == [0]


def test_other_tasks_are_compared_on_random_ids(tiny: Path) -> None:
    assert mhsa("train", *OTHER, "task.name=copy", "seq_len=4", "epochs=0").code == 0
    inputs = mhsa("compare", "tiny", "other", "--json").json["matches"]["inputs"]
    assert "32 rows of 4 random ids, because shift and copy have no rows in common" in inputs
    assert "longer rows of 6 tokens" in inputs


def test_texts_that_differ_in_their_characters_cannot_be_matched(here: Path) -> None:
    for name, text in (("a", "abcd" * 60), ("b", "abcde" * 60)):
        Path(f"{name}.txt").write_text(text)
        command = ("train", "task.name=text", f"task.path={name}.txt", "seq_len=5", "epochs=0")
        assert mhsa(*command, "--name", name).code == 0
    document = mhsa("compare", "a", "b", "--json").json
    assert document["differences"] == {"task.path": ["a.txt", "b.txt"]}
    assert "the vocabularies differ (4 and 5 ids)" in document["matches_note"]
    shutil.copy("a.txt", "moved.txt")
    assert mhsa("train", "task.name=text", "task.path=moved.txt", "seq_len=5", "epochs=0", "--name", "c").code == 0
    document = mhsa("compare", "a", "c", "--json").json
    assert "task.path" not in document["differences"]  # the same text
    assert "rows of text" in document["matches"]["inputs"]


def test_a_broken_model_is_said_and_gives_no_figure(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mhsa_cli.core.heads import match

    original = match.capture
    monkeypatch.setattr(match, "capture", lambda *given: [w * math.nan for w in original(*given)])
    document = mhsa("compare", "tiny", "tiny", "--json").json
    assert document["matches"] is None and "not finite" in document["matches_note"]
    said = mhsa("compare", "tiny", "tiny")
    assert said.code == 0 and "mean cost" not in said.out


def test_labels_stand_beside_heads_while_they_are_those_of_the_model(tiny: Path) -> None:
    without_hashes(tiny)
    file = tiny / "heads.json"
    content = json.loads(file.read_text())
    for head, label in zip(content["heads"], ["previous:named", "spread", *[None] * 4], strict=True):
        head |= {"label_id": label, "target": "previous" if label == "previous:named" else None}
    file.write_text(json.dumps(content))
    said = mhsa("compare", "tiny", "tiny")
    assert ["L0.H0", "previous", "token"] * 2 + ["0.00"] in [line.split() for line in said.out.splitlines()]
    assert said.out.count("previous token") == 2 and said.out.count("pattern") == 2
    file.write_text(json.dumps({**content, "step": 5}))  # training went on since
    assert "previous token" not in mhsa("compare", "tiny", "tiny").out
    file.write_text("{")
    said = mhsa("compare", "tiny", "tiny")
    assert said.code == 0 and "heads.json of tiny" in said.err and "mean cost" in said.out
    file.unlink()
    said = mhsa("compare", "tiny", "tiny")
    assert said.code == 0 and said.err == "" and "mean cost" in said.out


def test_what_run_json_lacks_is_blank(tiny: Path) -> None:
    info = {key: value for key, value in facts(tiny).items() if key not in ("final", "seconds", "chance")}
    (tiny / "run.json").write_text(json.dumps(info))
    said = mhsa("compare", "tiny", "tiny")
    assert said.code == 0 and ["accuracy"] in [line.split() for line in said.out.splitlines()]
    assert mhsa("compare", "tiny", "tiny", "--json").json["final"][0]["eval_loss"] is None


def test_the_whole_comparison_in_a_file(tiny: Path) -> None:
    said = mhsa("compare", "tiny", "tiny", "--json", "-o", "a.svg", "--as", "terminal")
    assert said.code == 0 and said.json and "wrote a.svg" in said.err
    text = Path("a.svg").read_text()
    assert "tiny and tiny" in text and "L1.H2" in text
    assert mhsa("compare", "tiny", "tiny", "-o", "a.doc").code == 2


@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_it_fits(width: int, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = mhsa("compare", "tiny", "other")
    picture = said.out.split("  mhsa sweep")[0]
    assert said.code == 0 and max(map(len, picture.splitlines())) <= width
    assert mhsa("compare", "tiny", "other", encoding="ascii").out.isascii()


def test_one_seed_each_leads_to_the_sweep_that_would_tell(other: Path, tiny: Path) -> None:
    said = mhsa("compare", "tiny", "other").out
    assert said.index(ONE_SEED_EACH.split(";")[0]) < said.index("mhsa sweep ") < said.index("next:")
    line = next(line for line in said.splitlines() if "mhsa sweep" in line)
    command = line.split()[2:]
    assert command == ["--config", "runs/tiny/config.yaml", "model.n_heads=3,2", "--seeds", "8"]
    assert mhsa("sweep", *command, "--dry-run").code == 0
    assert "mhsa sweep" not in mhsa("compare", "tiny", "tiny").out
    both = mhsa("train", "--config", "tiny.yaml", "--name", "both", "n_heads=2", "lr=0.5", "-q")
    assert both.code == 0
    said = mhsa("compare", "tiny", "both").out  # no sweep of one setting tells two apart
    assert ONE_SEED_EACH.split(";")[0] in said and "mhsa sweep" not in said
