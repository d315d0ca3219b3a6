"""Every command by its name, with its help; its module is loaded when it is asked for."""

from __future__ import annotations

import importlib
from typing import Annotated, Any, NamedTuple

import typer

from mhsa_cli import __version__
from mhsa_cli.commands.command_line import Command, Group


class Help(NamedTuple):
    """What a command's help says, and arguments to copy. It is no docstring, for `python -OO` drops those."""

    summary: str
    example: str = ""
    more: str = ""


COMMANDS = {
    "train": Help(
        "Train a model on a toy task; show the loss, every head's map, and where the run is kept.",
        "--config configs/copy.yaml n_heads=8 train.lr=1e-3",
    ),
    "inspect-heads": Help(
        "Show where every head looks and what was measured of it; one colour scale for all heads.",
        'copy-h4 --head L0.H0 --tokens "3 5 9 63 3 5"',
    ),
    "bench": Help(
        "Measure this machine: training steps, stacks of models, threads, attention over T, start-up. Keeps no run.",
        "d_model=64 batch_size=32",
    ),
    "check": Help(
        "Grade attention that somebody wrote: hold it to the laws of attention, and name what is wrong.",
        "my_attention.py:MyAttention",
        "It runs in a process of its own, and only the lines that it needs. Exit 0: all are right; 7: one is wrong; "
        "2: none is, but one is not clear or cannot be called.",
    ),
    "compare": Help(
        "Compare two runs: settings, figures, curves, and which head of one does what which head of the other does.",
        "copy-h4 copy-h8",
    ),
    "curve": Help("Show the loss of a run again, or several runs over each other.", "copy-h4 copy-h8"),
    "explain": Help("Say in plain words what each head looks at, how that is known, and what it causes.", "copy-h4"),
    "export": Help(
        "Write a run for other programs: arrays, tables, one document, TransformerLens, TensorBoard.",
        "copy-h4 --to transformer-lens",
    ),
    "generate": Help(
        "Say what a trained model says after a prompt, token by token as it comes.", 'copy-h4 --prompt "3 5 9 1 2 7 |"'
    ),
    "runs": Help("List the runs, newest first, with how they ended; or one run in lines `key: value`.", "copy-h4"),
    "sweep": Help(
        "Train every combination of comma lists with many seeds, and say what differs and what does not.",
        "--config configs/copy.yaml n_heads=1,2,4,8 --seeds 16",
    ),
    "tasks": Help(
        "List the tasks; each is drawn as the ids that go in over the answers wanted, with what guessing scores."
    ),
    "timeline": Help(
        "Show when every head became what it is: its lift over training under the loss curve, in the same columns.",
        "copy-h4 --target previous",
    ),
    "trace": Help(
        "Follow the tensors of a config through its untrained model: shapes, views and copies, FLOPs, values, checks.",
        "seq_len=5 d_model=16 n_heads=4",
    ),
    "verify": Help(
        "Check every file of a run: hashes, formats, the curve, weights against config. Damage: exit 4, and a way out.",
        "copy-h4",
    ),
    "config": Help("Write, check and show configs."),
}
_PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
_SETTINGS = {"help_option_names": ["-h", "--help"]}


class Commands(Group):
    """All commands: the module of one is `mhsa_cli.commands.NAME`, and in it its function, or the group's `app`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command; None if there is none of this name."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def summaries(self, ctx: Any) -> list[tuple[str, str]]:
        """List the commands with a line on each, none of them loaded for it."""
        return [(name, told.summary) for name, told in COMMANDS.items()]


def _load(name: str) -> Any:
    told, function = COMMANDS[name], name.replace("-", "_")
    module = importlib.import_module(f"mhsa_cli.commands.{function}")
    if hasattr(module, "app"):
        group = typer.main.get_group(module.app)
        group.name, group.help = name, told.summary
        return group
    one = typer.Typer(**_PLAIN, context_settings=_SETTINGS)
    example = f"Example: mhsa {name} {told.example}" if told.example else None
    text = "\n\n".join(filter(None, (told.summary, told.more)))
    one.command(name, cls=Command, help=text, epilog=example)(getattr(module, function))
    return typer.main.get_command(one)


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


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass
