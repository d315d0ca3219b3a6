"""mhsa generate: what the model says, when it is printed, and every way of asking wrongly."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.shell import environment, mhsa, tree

SOURCE = str(Path(__file__).parents[2])
ASK = ("generate", "tiny", "--prompt", "1 2")


def test_it_says_the_prompt_and_what_follows(tiny: Path) -> None:
    """As many tokens as fit: the last one is never read back."""
    said = mhsa(*ASK)
    words = said.out.split()
    assert said.code == 0 and said.err == "" and said.out == " ".join(words) + "\n"
    assert words[:2] == ["1", "2"] and len(words) == 2 + 5
    assert all(0 <= int(word) < 11 for word in words)
    assert mhsa(*ASK, "--no-cache").out == said.out
    assert mhsa(*ASK, "--max-new-tokens", "3").out.split() == words[:5]
    assert mhsa("generate", "tiny", "-p", "1,2").out == said.out


def test_json_is_one_document_with_the_same_tokens(tiny: Path) -> None:
    document = mhsa(*ASK, "--json").json
    assert document == {
        "run": "tiny",
        "step": 10,
        "prompt": [1, 2],
        "tokens": document["tokens"],
        "symbols": [str(i) for i in document["tokens"]],
    }
    assert mhsa(*ASK).out.split() == ["1", "2", *document["symbols"]]
    assert mhsa(*ASK, "--json", "--no-cache").json == document
    assert mhsa(*ASK, "--json", "--max-new-tokens", "0").json["tokens"] == []


def test_nothing_more_may_be_asked_for(tiny: Path) -> None:
    said = mhsa(*ASK, "--max-new-tokens", "0")
    assert (said.code, said.out) == (0, "1 2\n")
    assert len(mhsa("generate", "tiny", "--prompt", "1 2 3 4 5 6").out.split()) == 7  # one more than positions


def test_it_only_reads_the_run(tiny: Path) -> None:
    before = tree(tiny)
    assert mhsa(*ASK, "--temperature", "1").code == 0
    assert {**tree(tiny), ".lock": None} == {**before, ".lock": None}
    assert mhsa("generate", "--prompt", "1 2").out == mhsa(*ASK).out  # left out, the newest run


def test_draws_follow_the_seed(tiny: Path) -> None:
    drawn = [mhsa(*ASK, "--temperature", "2.5", "--seed", seed).out for seed in (3, 3, 4, 5, 6)]
    assert drawn[0] == drawn[1] and len(set(drawn)) > 2
    assert mhsa(*ASK, "--temperature", "2.5", "--seed", 3, "--no-cache").out == drawn[0]
    assert mhsa(*ASK, "--temperature", "2.5", "--top-k", 1).out == mhsa(*ASK).out
    assert mhsa(*ASK, "--temperature", "1e-320").out == mhsa(*ASK).out
    assert mhsa(*ASK, "--top-k", 99999).code == 0


def test_every_token_is_printed_and_flushed_before_the_next_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    from mhsa_cli.commands.generate import _stream
    from mhsa_cli.core.tasks.shift import Shift

    raw, seen = io.BytesIO(), []
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="utf-8"))

    def slowly() -> Iterator[int]:
        for token in (7, 3, 5):
            seen.append(raw.getvalue())
            yield token
        seen.append(raw.getvalue())

    _stream(Shift(vocab_size=11, seq_len=6), [1, 2], slowly())
    assert [*seen, raw.getvalue()] == [b"1 2", b"1 2 7", b"1 2 7 3", b"1 2 7 3 5", b"1 2 7 3 5\n"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prompt", ""], ["--prompt", '--prompt "3 5 9"']),
        (["--prompt", " , "], ["--prompt is empty"]),
        (["--prompt", "1 x"], ["--prompt: 'x' (token 2 of 2) is not an id", "0 to 10"]),
        (["--prompt", "11"], ["'11'", "0 to 10"]),
        (["--prompt", "-1"], ["'-1'"]),
        (["--prompt", "٣"], ["is not an id"]),
        (["--prompt", "1 2 3 4 5 6 7"], ["7 tokens", "max_seq_len=6"]),
        (
            ["--prompt", "1 2", "--max-new-tokens", "6"],
            ["max_seq_len (6)", "at most 5 tokens"],
        ),
        (["--prompt", "1", "--max-new-tokens", "99999999999999999999"], ["max_seq_len (6)", "at most 6 tokens"]),
        (["--prompt", "1", "--max-new-tokens", "-1"], ["--max-new-tokens: found `-1`"]),
        (["--prompt", "1", "--max-new-tokens", "1.5"], ["--max-new-tokens: found `1.5`"]),
        (["--prompt", "1", "--temperature", "nan"], ["--temperature: found `nan`"]),
        (["--prompt", "1", "--temperature", "inf"], ["--temperature: found `inf`"]),
        (["--prompt", "1", "--temperature", "-0.1"], ["--temperature: found `-0.1`"]),
        (["--prompt", "1", "--temperature", "warm"], ["--temperature: found `warm`"]),
        (["--prompt", "1", "--top-k", "0"], ["--top-k: found `0`"]),
        (["--prompt", "1", "--seed", "-1"], ["--seed: found `-1`"]),
        (["--prompt", "1", "--seed", str(2**63)], [f"--seed: found `{2**63}`", str(2**63 - 1)]),
    ],
    ids=str,
)
def test_wrong_questions_are_errors_of_usage(arguments: list[str], words: list[str], tiny: Path) -> None:
    """Nothing is printed before the question is known to be right."""
    said = mhsa("generate", "tiny", *arguments)
    assert (said.code, said.out) == (2, ""), said.err
    for word in words:
        assert word in said.err
    assert "internal" not in said.err


def test_a_run_that_is_not_there(here: Path) -> None:
    assert mhsa("generate", "--prompt", "1").code == 4
    said = mhsa("generate", "nowhere", "--prompt", "1")
    assert said.code == 4 and "nowhere" in said.err


@pytest.mark.parametrize("form", ["positions=rope", "positions=alibi", "attention=linear", "window=2", "n_kv_heads=1"])
def test_every_form_speaks_with_and_without_a_cache(form: str, here: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "epochs=1", "--name", "form", form).code == 0
    cached, plain = (mhsa("generate", "form", "--prompt", "1 2", *more) for more in ([], ["--no-cache"]))
    assert cached.code == 0 and cached.out == plain.out and len(cached.out.split()) == 7


TEXT = "naïve café — ☃ 漢字\n" * 20


@pytest.fixture
def prose(here: Path) -> Path:
    (here / "own.txt").write_text(TEXT, encoding="utf-8")
    train = ("train", "task.name=text", "task.path=own.txt", "task.seq_len=9", "n_heads=2", "steps_per_epoch=40")
    assert mhsa(*train, "epochs=2", "lr=2e-2", "--name", "prose").code == 0
    return here / "runs" / "prose"


def test_a_text_is_written_as_text(prose: Path) -> None:
    """Characters without spaces between them, line ends as line ends, and spaces of the prompt kept."""
    said = mhsa("generate", "prose", "--prompt", "caf")
    assert said.code == 0 and said.out.startswith("caf") and len(said.out) == 3 + 7 + 1
    assert set(said.out) <= set(TEXT)
    document = mhsa("generate", "prose", "--prompt", "é ", "--json").json
    assert len(document["prompt"]) == 2 and len(document["tokens"]) == 8
    wrong = mhsa("generate", "prose", "--prompt", "Z")
    assert wrong.code == 2 and "'Z'" in wrong.err and wrong.out == ""
    for encoding in ("ascii", "cp1252"):
        old = mhsa("generate", "prose", "--prompt", "☃", encoding=encoding)
        assert old.code == 0 and old.out.startswith("\\u2603") and "?" not in old.out


# Copies itself once all is loaded, a process for each command: the arguments after a "stdout=..." that says where its
# output goes. Each is followed by its exit code.
COPIES = """
import gc, os, sys
import mhsa_cli.commands.app, mhsa_cli.core.model.generate, mhsa_cli.core.heads.capture, mhsa_cli.core.training.load
gc.freeze()  # what is shared is left alone when a copy ends
commands = []
for text in sys.argv[1:]:
    commands.append([text]) if text.startswith("stdout=") else commands[-1].append(text)
for where, *sys.argv[1:] in commands:
    reader, target = os.pipe() if where == "stdout=|head -c 1" else (None, os.open(where[7:], os.O_WRONLY))
    child = os.fork()
    if child == 0:
        os.dup2(target, 1)
        if reader is not None:
            os.close(reader)
        from mhsa_cli.__main__ import main
        sys.exit(main())
    os.close(target)
    if reader is not None:
        os.write(1, os.read(reader, 1))
        os.close(reader)
    os.write(1, b":%d\\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_real_processes_in_the_c_locale_and_with_readers_that_leave(tiny: Path, prose: Path) -> None:
    old = environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONPATH=SOURCE)
    commands = ["stdout=/dev/stdout", "generate", "prose", "--prompt", "caf"]
    commands += ["stdout=/dev/stdout", "generate", "prose", "--prompt", "é", "--json"]
    commands += ["stdout=|head -c 1", "generate", "tiny", "--prompt", "1"]
    commands += ["stdout=/dev/full", "generate", "tiny", "--prompt", "1"]
    done = subprocess.run([sys.executable, "-c", COPIES, *commands], env=old, capture_output=True, check=False)
    out = done.stdout.decode("ascii")
    assert out.startswith("caf") and '{"run": "prose", "step": 80, "prompt": [' in out
    assert out.count("\n:0\n") == 2 and out.split()[-2] in ("1:0", "1:1") and out.split()[-1] == ":5"
    assert done.stderr.count(b"error: ") == 1 and b"Traceback" not in done.stderr and b"internal" not in done.stderr
