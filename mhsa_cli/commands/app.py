"""The commands by name, with their help; a command's module is loaded when it is called."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from typing import Annotated, Any, NamedTuple

import typer
from typer.completion import get_completion_inspect_parameters, install_callback, show_callback

from mhsa_cli import __version__
from mhsa_cli.commands.command_line import Command, Group
from mhsa_cli.errors import COMPLETION


class Help(NamedTuple):
    """A command's help: a summary, arguments to copy, and what else to know. `python -OO` drops docstrings."""

    summary: str
    example: str
    more: str = ""


LEARN = {
    "train": Help(
        "Train a model from a config and save the run",
        "--config copy n_heads=8 train.lr=1e-3",
        "Draws the loss while it trains, with --live heads also the maps, then the attention map of every head. "
        "Ctrl-C saves a checkpoint; --resume continues from it.",
    ),
    "tasks": Help(
        "Show the tasks that models are trained on",
        "copy",
        "Draws an input row of each task over its target row, and gives the chance level.",
    ),
    "inspect-heads": Help(
        "Show attention maps, scores, circuits and ablations",
        'copy-h4 --heads L0.H0 --tokens "3 5 9 63 3 5"',
        "By default, draws the attention map of every head on one colour scale, and a table of the heads. Of a sweep: "
        "a row for each trial, with the labels of its heads.",
    ),
    "explain": Help(
        "Describe what each head does, with the evidence",
        "copy-h4",
        "Of a sweep: how many seeds of each setting have a head with each label.",
    ),
    "timeline": Help(
        "Show when each head learned its pattern",
        "copy-h4 --target previous",
        "Draws each head's lift over training under the loss curve, in the same columns. Of a sweep: the median "
        "onsets of each setting. Keys of --replay: space pauses, left and right step, + and - change the speed, l "
        "shows other heads, q ends.",
    ),
    "curve": Help(
        "Plot the loss of one run or of several",
        "copy-h4 copy-h8",
        "Of a sweep: the run of median loss of each setting, over the quartiles of all its runs.",
    ),
    "report": Help(
        "Write a page to explore a run in a browser",
        "copy-h4 -o r.html",
        "One file that needs no network: training on a slider, with the maps and lifts of every head; heads made "
        "uniform by a click, with the loss; a sentence for each head. Of two runs: side by side. Of a sweep: its "
        "curves, onsets and labels, and the maps of up to 12 trials.",
    ),
    "explore": Help(
        "Look at runs on a full screen, with keys",
        "copy-h4",
        "Arrow keys move over training and from head to head; space makes a head uniform and shows the loss. Needs the "
        "extra `tui`.",
    ),
    "trace": Help(
        "Follow tensor shapes and values through a model",
        "seq_len=5 d_model=16 n_heads=4",
        "Runs the untrained model of a config on a few rows: shapes, views and copies, FLOPs, values, and checks of "
        "what must hold for attention.",
    ),
    "generate": Help("Generate tokens from a prompt with a trained model", 'copy-h4 --prompt "3 5 9 1 2 7 |"'),
}
MEASURE = {
    "sweep": Help(
        "Train a grid of settings with many seeds and compare",
        "--config copy n_heads=1,2,4,8 --seeds 16",
        "Every combination of the comma lists is trained with every seed; lr=1e-3..1e-2:5:log is a range of 5 values, "
        "linear without :log, and a section `sweep` of the config has the same. The report states the differences "
        "that the seeds support; `mhsa sweep show SWEEP` prints it again.",
    ),
    "compare": Help(
        "Compare two runs and match their heads",
        "copy-h4 copy-h8",
        "Compares settings, results and curves, and matches heads by their attention maps on the same rows. Of a "
        "sweep: neighbouring settings, compared seed by seed.",
    ),
    "evaluate": Help(
        "Evaluate a run on held-out rows, also of other lengths",
        "copy-h4 task.seq_len=8,12",
        "Loss, accuracy and exact match, also by position. Settings of the task may be changed, with a list a row for "
        "each value; the first row is the task as trained. Of a sweep: medians over the seeds of each setting.",
    ),
    "bench": Help(
        "Measure training speed and memory on this machine",
        "d_model=64 batch_size=32",
        "Times training steps, stacks of models, threads, attention over sequence length, and start-up. Saves no run.",
    ),
    "doctor": Help(
        "Check this machine: torch, terminal, disk",
        "-v",
        "For a report, or where something is slow or ugly. Torch is imported by a process of its own, and the folder "
        "of runs gets a file for a moment. Exit codes: 0 mhsa can be used, 2 torch or a library is missing or broken, "
        "5 no run can be kept.",
    ),
    "check": Help(
        "Test attention code and locate its faults",
        "my_attention.py:MyAttention",
        "The code runs in a process of its own, and only the statements that the block needs. Exit codes: 0 all blocks "
        "are right, 7 at least one is wrong, 2 none is wrong but one is not clear or cannot be called.",
    ),
}
KEEP = {
    "runs": Help(
        "List runs with their status and results, or delete some",
        "--sort accuracy --filter n_heads=8 --status finished",
        "With RUN, prints the facts of one run as lines `key: value`. `mhsa runs rm RUN...` deletes runs and sweeps "
        "that no process owns, after one question.",
    ),
    "verify": Help(
        "Check the files of a run or a sweep for damage",
        "copy-h4",
        "Compares hashes, formats, metrics, and the weights with the config. Damage ends with exit code 4 and a list "
        "of what is still usable.",
    ),
    "export": Help(
        "Export a run: NPZ, CSV, TransformerLens, TensorBoard",
        "copy-h4 --to transformer-lens",
        "Of a sweep, as csv or json: the results, metrics and heads of all trials.",
    ),
    "config": Help("Write, check and show configs; list the recipes", "show n_heads=8"),
}
SECTIONS = {"Learn": LEARN, "Measure": MEASURE, "Keep": KEEP}
COMMANDS = {name: text for section in SECTIONS.values() for name, text in section.items()}
_PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
_SETTINGS = {"help_option_names": ["-h", "--help"]}


class Commands(Group):
    """All commands. The module of each is `mhsa_cli.commands.NAME`, with a function NAME or a group `app`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command; None for an unknown name."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line. Where bash asks for words, leave out the part of them that it keeps."""
        if COMPLETION not in os.environ:
            return super().main(*args, **options)
        from mhsa_cli.commands.completion import join_words  # not for other uses

        get_completion_inspect_parameters()  # it registers the shells
        kept = join_words()
        found = io.StringIO()
        try:
            with contextlib.redirect_stdout(found):
                return super().main(*args, **options)
        finally:
            print(
                "\n".join(line[kept:] for line in found.getvalue().splitlines()) if kept else found.getvalue(), end=""
            )

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """List the commands and options that begin with a text, without loading a command."""
        loaded, self.commands = self.commands, {name: Command(name, help=COMMANDS[name].summary) for name in COMMANDS}
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.commands = loaded

    def sections(self, ctx: Any) -> list[tuple[str, list[tuple[str, str]]]]:
        """List the commands with their summaries, without loading them."""
        return [(heading, [(name, text.summary) for name, text in each.items()]) for heading, each in SECTIONS.items()]


def _load(name: str) -> Any:
    text, function = COMMANDS[name], name.replace("-", "_")
    module = importlib.import_module(f"mhsa_cli.commands.{function}")
    example = f"Example: mhsa {name} {text.example}"
    if hasattr(module, "app"):
        group = typer.main.get_group(module.app)
        group.name, group.help, group.epilog = name, text.summary, example
        return group
    single = typer.Typer(**_PLAIN, context_settings=_SETTINGS)
    paragraphs = "\n\n".join(filter(None, (text.summary, text.more)))
    single.command(name, cls=Command, help=paragraphs, epilog=example)(getattr(module, function))
    return typer.main.get_command(single)


app = typer.Typer(
    name="mhsa",
    help="Train tiny attention models in seconds, in a terminal, and see what each head really does.",
    epilog="Start with: mhsa train task.name=copy",
    cls=Commands,
    context_settings=_SETTINGS,
    **_PLAIN,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mhsa {__version__}")
        raise typer.Exit


def _on_completion(name: str, callback: Any, help: str) -> Any:
    """Make one of typer's options of shell completion, with help in our style."""
    return typer.Option(name, callback=callback, expose_value=False, help=help)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="print the version and exit", callback=_version, is_eager=True)
    ] = False,
    install: Annotated[
        bool,
        _on_completion("--install-completion", install_callback, "let this shell complete runs and settings"),
    ] = False,
    show: Annotated[
        bool, _on_completion("--show-completion", show_callback, "print the script that --install-completion installs")
    ] = False,
) -> None:
    pass
