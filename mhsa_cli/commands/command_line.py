"""The command line itself: help in our own layout, an option given twice, and mistakes told in our own words."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from mhsa_cli.errors import UsageError
from mhsa_cli.text import escape

# What typer raises when it cannot read a command line. It brings its own click, so there is no public name for it.
_Misread = cast(type[Exception], typer.BadParameter.__base__)


class Command(TyperCommand):
    """A command whose options may be given once, and whose help and mistakes are ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments. Raises: UsageError with the way out."""
        try:
            _refuse_repeats(self, ctx, args)
            return super().parse_args(ctx, list(args))
        except _Misread as error:
            raise _told(error, self, ctx, args) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _print_help(self, ctx)


class Group(TyperGroup):
    """A command of commands: alone it shows its help, and a word that is no command of it leads on to one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments up to the command's name; `help` and `version` are what they are as options."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        elif args[:1] == ["version"] and ctx.parent is None:
            args = ["--version"]
        try:
            return super().parse_args(ctx, list(args) or ["--help"])
        except _Misread as error:
            raise _told(error, self, ctx, args) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is named. Raises: UsageError where none is."""
        try:
            return super().invoke(ctx)
        except _Misread as error:
            raise _told(error, self, ctx, ()) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command that is named. Raises: UsageError naming the one that was meant."""
        command = self.get_command(ctx, args[0])
        if command is None:
            from mhsa_cli.commands.suggestions import no_such_command

            raise no_such_command(ctx.command_path, args, self.list_commands(ctx))
        return args[0], command, args[1:]

    def summaries(self, ctx: Any) -> list[tuple[str, str]]:
        """List the commands with the first paragraph of their help."""
        return [(name, (one.help or "").partition("\n\n")[0]) for name, one in self.commands.items()]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _print_help(self, ctx)


def _read_all(command: Any, ctx: Any, args: Sequence[str]) -> dict[str, Any]:
    """Read the options once more, with every value of each."""
    parser = type(command.make_parser(ctx))(ctx)
    for param in command.get_params(ctx):
        twin = copy.copy(param)
        if param.param_type_name == "option":
            twin.multiple = True
        twin.add_to_parser(parser, ctx)
    found: dict[str, Any] = parser.parse_args(list(args))[0]
    return found


def _refuse_repeats(command: Any, ctx: Any, args: Sequence[str]) -> None:
    """Refuse an option that takes one value and is given several; the last would win in silence."""
    given = _read_all(command, ctx, args)
    for param in command.get_params(ctx):
        values = given.get(param.name) or ()
        if param.param_type_name != "option" or param.multiple or len(values) < 2:
            continue
        if param.is_flag:
            if len(set(values)) > 1:
                raise UsageError(f"{param.opts[0]} and {param.secondary_opts[0]} were both given", "keep one of them")
            continue
        found = " and ".join(f"{param.opts[0]} {escape(value)}" for value in values)
        raise UsageError(f"{param.opts[0]} takes one value, found {len(values)}: {found}", "keep one of them")


def _told(error: Any, command: Any, ctx: Any, args: Sequence[str]) -> UsageError:
    from mhsa_cli.commands.suggestions import no_such_option

    name = getattr(error, "option_name", None)
    if name is not None and hasattr(error, "possibilities"):
        return no_such_option(ctx, name, args)
    param, way = getattr(error, "param", None), f"see: {ctx.command_path} --help"
    if error.message and param is not None and param.param_type_name == "option":
        value = _read_all(command, ctx, args)[param.name][-1]
        return UsageError(f"{param.opts[0]}: found `{escape(value)}`: {_one_line(error.message)}", way)
    return UsageError(_one_line(error.format_message()), way)


def _one_line(said: str) -> str:
    line = escape(" ".join(said.split())).removeprefix("Value error, ").removesuffix(".")
    return line[:1].lower() + line[1:]


def _print_help(command: Any, ctx: Any) -> None:
    from mhsa_cli.renderers.kit.console import make_console
    from mhsa_cli.renderers.pictures.help import help_page

    arguments, options = [], []
    for param in command.get_params(ctx):
        name, text = param.get_help_record(ctx) or ("", "")
        if param.param_type_name == "argument":
            arguments.append((param.metavar or param.name.upper(), text))
        elif name:
            options.append((name, text))
    commands = command.summaries(ctx) if isinstance(command, Group) else []
    usage = " ".join([ctx.command_path, "[OPTIONS]", *(name for name, _ in arguments)])
    usage += " COMMAND ..." if commands else ""
    text = (command.help or "").split("\n\n")
    examples = [command.epilog] if command.epilog else []
    groups = [("Commands", commands), ("Arguments", arguments), ("Options", options)]
    console = make_console()
    groups = [group for group in groups if group[1]]
    console.print(help_page(usage, text, examples, groups, width=console.width), crop=False)
