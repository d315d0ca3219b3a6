"""What `mhsa train` leaves on a real terminal: at most its rows, with one for the prompt; a pipe gets all."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mhsa_cli.jobs.history import History
from mhsa_cli.records.training import EpochRecord
from mhsa_cli.runs.run_dir import RunDir
from tests.commands import custom
from tests.commands.shell import SMALL, at_step, environment, facts, mhsa, mhsa_on_terminal

TINY = ["epochs=2", "steps_per_epoch=2", "batch_size=3", "eval_sequences=4"]
SHAPES = {
    "copy": ["task.name=copy"],
    "many heads": ["task.name=copy", "d_model=36", "n_heads=9"],
    "two layers": ["task.name=shift", "n_layers=2", "residual=true"],
    "a long row": ["task.name=shift", "seq_len=64"],
    "baselines": ["--config", "markov"],
    "encoder-decoder": ["--config", "copy_encoder_decoder"],
    "many epochs": ["task.name=copy", "epochs=9"],
    "text": ["task.name=text", "task.path=text.txt", "seq_len=8"],
    "no maps": ["task.name=copy", "model.attention=mine.py:Silent"],
    "untrained": ["epochs=0"],
    "all rows seen": ["task.name=repeat"],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_training_ends_within_its_terminal(shape: str, here: Path) -> None:
    (here / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    custom.write(here)
    for columns, rows in ((80, 24), (60, 20), (120, 40)):
        settings = [*TINY, *(one for one in SHAPES[shape] if "=" in one)]
        given = {one.partition("=")[0]: one for one in settings if "=" in one}
        others = [one for one in SHAPES[shape] if "=" not in one]
        code, kept = mhsa_on_terminal("train", *others, *given.values(), columns=columns, rows=rows)
        assert code == 0, kept
        assert len(kept) < rows, (columns, rows)
        assert any("wrote runs/" in line for line in kept[-2:]) and "next: mhsa " in kept[-1]
        assert not any("loading" in line or "step " in line and "left" in line for line in kept)
        assert (columns, rows) == (60, 20) or shape == "no maps" or any("query" in line for line in kept)


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "xterm"}])
def test_digits_fit_as_well(environ: dict[str, str]) -> None:
    code, kept = mhsa_on_terminal("train", *TINY, "task.name=copy", **environ)
    assert code == 0 and len(kept) < 24 and any("weight in tenths" in line for line in kept)


def test_verbose_is_what_a_pipe_gets_and_quiet_one_line() -> None:
    settings = ["--runs", "r", *SMALL]
    pipe = mhsa("train", *settings, "--name", "a").out.splitlines()
    _, verbose = mhsa_on_terminal("train", *settings, "--name", "b", "-v", NO_COLOR="1")
    _, usual = mhsa_on_terminal("train", *settings, "--name", "c", NO_COLOR="1")
    # The live view has two columns less, and seconds differ; the pipe and a terminal wrap sentences elsewhere.
    assert len(usual) < 24 < len(pipe) <= len(verbose)
    assert [line for line in pipe if line.startswith(("L0.H", "epoch"))] == [
        line for line in verbose if line.startswith(("L0.H", "epoch"))
    ]
    code, quiet = mhsa_on_terminal("train", *settings, "--name", "d", "-q")
    final = facts(Path("r/d"))["final"]
    assert code == 0 and len(quiet) == 1 and quiet[0].startswith("r/d: ") and f"{final['eval_loss']:.4f}" in quiet[0]
    said = mhsa("train", *settings, "--name", "e", "-q")
    assert said.err == "" and said.out.count("\n") == 1
    assert mhsa("train", *settings, "-q", "-v").code == 2
    assert mhsa("train", *settings, "--name", "f", "-q", "--json").json["run"] == "r/f"


def test_a_stopped_training_leaves_room_for_the_way_on() -> None:
    with at_step(5, lambda: signal.raise_signal(signal.SIGINT)):
        longer = [text.replace("epochs=2", "epochs=9") for text in SMALL]
        code, kept = mhsa_on_terminal("train", *longer, "--name", "stopped")
    assert code == 130 and len(kept) < 24
    assert "stopped after step 5" in kept[-1] and "mhsa train --resume stopped" in kept[-1]
    assert mhsa_on_terminal("train", "--resume", "stopped")[0] == 0
    code, kept = mhsa_on_terminal("train", "--resume", "stopped")
    assert code == 0 and len(kept) < 3 and "is complete" in " ".join(kept)


def test_a_few_epochs_are_spread_evenly_over_any_number(tiny: Path) -> None:
    history = History(RunDir.open(Path("runs"), "tiny"))
    assert [record.epoch for record in history.few_epochs] == [1, 2]
    for epoch in range(3, 1001):
        history.add(EpochRecord(epoch, 5 * epoch, 1.0, 1.0, 0.5))
        found = [record.epoch for record in history.few_epochs]
        wanted = [1, 1 + (epoch - 1) / 3, 1 + 2 * (epoch - 1) / 3, epoch] if epoch > 3 else [1, 2, 3]
        assert found[0] == 1 and found[-1] == epoch and len(found) == len(set(found)) == len(wanted)
        assert all(abs(one - place) <= max(1, epoch / 30) for one, place in zip(found, wanted, strict=True))


# Stderr calls itself a terminal, and writes down what it is told and whether torch is there by then.
ORDER = """
import json, os, sys
from mhsa_cli.__main__ import main
told, is_terminal = [], json.loads(sys.argv[1])
class Terminal:
    encoding = "utf-8"
    def isatty(self): return is_terminal
    def write(self, text): told.append([text, hasattr(sys.modules.get("torch"), "Tensor")]); return len(text)
    def flush(self): pass
    def fileno(self): raise OSError
terminal, arguments, said = Terminal(), json.loads(sys.argv[2]), sys.stdout
sys.stdout, sys.argv = open(os.devnull, "w"), ["mhsa", *arguments]
sys.stderr = terminal
try:
    main()
except SystemExit as end:
    pass
print(json.dumps([told, "torch" in sys.modules]), file=said)
"""


def order(*arguments: str, terminal: bool = True) -> tuple[list[tuple[str, bool]], bool]:
    """What a fresh process says on stderr, each text with whether torch was there, and whether it is there at last."""
    import json

    run = [sys.executable, "-c", ORDER, json.dumps(terminal), json.dumps(arguments)]
    told = environment(TERM="xterm-256color", PYTHONPATH=str(Path(__file__).parents[2]))
    done = subprocess.run(run, env=told, capture_output=True, text=True, check=False)
    words, loaded = json.loads(done.stdout)
    return [(text, there) for text, there in words], loaded


def test_first_words_come_before_torch_and_go_when_it_is_there(tiny: Path) -> None:
    for command in (["train", *TINY], ["inspect-heads", "tiny", "--ablate", "L0.H0"]):
        words, loaded = order(*command)
        assert loaded and words[0] == ("loading torch ...", False)
        assert words[1] == ("\r\x1b[K", True), words[:3]
        for others in (["--json"], ["-q"] if command[0] == "train" else ["--json"]):
            assert not any("loading" in text for text, _ in order(*command, *others)[0])
        assert not any("loading" in text for text, _ in order(*command, terminal=False)[0])
    assert order("explain", "tiny") == ([], False)
    words, loaded = order("train", "n_head=3")  # refused before torch is loaded
    assert not loaded and [text for text, _ in words[:2]] == ["loading torch ...", "\r\x1b[K"]
