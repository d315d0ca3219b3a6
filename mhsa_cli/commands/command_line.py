"""The command line: help in our own layout, repeated options refused, and every error in one style."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, cast, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from mhsa_cli.commands.first_words import saying_first_words
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.text import either, escape

# What typer raises when it cannot read a command line. It brings its own click, so there is no public name for it.
_ParseError = cast(type[Exception], typer.BadParameter.__base__)
_ARGUMENT = re.compile(r"[A-Z]+(?:=[A-Z]+)?")  # a name in the metavar of an argument: RUN, or KEY=VALUE


class Command(TyperCommand):
    """A command whose options are given at most once; its help and its errors are in our layout."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments. Raises: UsageError with a hint."""
        try:
            if not ctx.resilient_parsing:  # as where a shell asks how a line may go on
                given = _parse_all(self, ctx, args)
                _refuse_options_as_values(self, ctx, given)
                _refuse_repeats(self, ctx, given)
            return super().parse_args(ctx, list(args))
        except _ParseError as error:
            raise _usage_error(error, self, ctx, args) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; on a terminal its first words are that torch is being loaded."""
        if ctx.params.get("as_json") or ctx.params.get("quiet"):
            return super().invoke(ctx)
        with saying_first_words(self.name):
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _print_help(self, ctx)


class Group(TyperGroup):
    """A command of commands: alone it shows its help, and an unknown command gets the nearest one as a hint."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments up to the command's name; `help` and `version` work like the options."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        elif args[:1] == ["version"] and ctx.parent is None:
            args = ["--version"]
        try:
            return super().parse_args(ctx, list(args) or ([] if ctx.resilient_parsing else ["--help"]))
        except _ParseError as error:
            raise _usage_error(error, self, ctx, args) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the named command. Raises: UsageError where none is named."""
        try:
            return super().invoke(ctx)
        except _ParseError as error:
            raise _usage_error(error, self, ctx, ()) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the named command. Raises: UsageError with the nearest one."""
        command = self.get_command(ctx, args[0])
        if command is None:
            from mhsa_cli.commands.suggestions import no_such_command

            raise no_such_command(ctx.command_path, args, self.list_commands(ctx))
        return args[0], command, args[1:]

    def sections(self, ctx: Any) -> list[tuple[str, list[tuple[str, str]]]]:
        """List the commands under their headings, each with the first paragraph of its help."""
        return [("Commands", [(name, _paragraphs(command)[0]) for name, command in self.commands.items()])]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _print_help(self, ctx)


def _paragraphs(command: Any) -> list[str]:
    return (command.help or "").split("\n\n")


def _parse_all(command: Any, ctx: Any, args: Sequence[str]) -> dict[str, Any]:
    """Parse the options once more, keeping every value of each."""
    parser = type(command.make_parser(ctx))(ctx)
    for param in command.get_params(ctx):
        twin = copy.copy(param)
        if param.param_type_name == "option":
            twin.multiple = True
        twin.add_to_parser(parser, ctx)
    values: dict[str, Any] = parser.parse_args(list(args))[0]
    return values


def _refuse_options_as_values(command: Any, ctx: Any, given: Mapping[str, Any]) -> None:
    """Refuse an option of the command where another one wants its value; typer would use it as the value."""
    params = [param for param in command.get_params(ctx) if param.param_type_name == "option"]
    options = {name for param in params for name in (*param.opts, *param.secondary_opts)}
    for param in params:
        values = [] if param.is_flag else [str(value) for value in given.get(param.name) or ()]
        if found := next((value for value in values if value.partition("=")[0] in options), None):
            wanted, named = param.metavar or _accepted(param, found), f"{param.opts[0]} {param.metavar or ''}".strip()
            message = f"{param.opts[0]}: found the option `{escape(found)}`, wanted {wanted}"
            raise UsageError(message, f"{named}: {param.help}")


def _refuse_repeats(command: Any, ctx: Any, given: Mapping[str, Any]) -> None:
    """Refuse a repeated option that takes one value; typer would use the last one silently."""
    for param in command.get_params(ctx):
        values, option = given.get(param.name) or (), param.opts[0]
        if param.param_type_name != "option" or param.multiple or len(values) < 2:
            continue
        if not param.is_flag:
            found = " and ".join(f"`{escape(value)}`" for value in values)
            raise UsageError(f"{option}: found {len(values)} values, {found}, wanted one", "keep one of them")
        if len(set(values)) > 1:
            raise UsageError(f"{option} and {param.secondary_opts[0]} exclude each other", "keep one of them")


def _usage_error(error: Any, command: Any, ctx: Any, args: Sequence[str]) -> UsageError:
    from mhsa_cli.commands.suggestions import no_such_option

    name = getattr(error, "option_name", None)
    if name is not None and hasattr(error, "possibilities"):
        return no_such_option(ctx, name, args)
    param, hint = getattr(error, "param", None), f"see: {ctx.command_path} --help"
    if name is not None:  # a value is missing, or is one too many
        metavar = next((p.metavar for p in command.get_params(ctx) if name in p.opts and not p.is_flag), None)
        return UsageError(f"{name}: found {f'no value, wanted {metavar}' if metavar else 'a value, wanted none'}", hint)
    if param is None:
        return UsageError(_one_line(error.format_message()), hint)
    if param.param_type_name == "argument":
        return UsageError(f"arguments: found none, wanted {param.metavar}", hint)
    value = _parse_all(command, ctx, args)[param.name][-1]
    if issubclass(kind := _kind(param), Enum):
        from mhsa_cli.config.spelling import nearest

        close = nearest(value, [choice.value for choice in kind], 3)
        hint = f"did you mean: {param.opts[0]} {close}" if close else hint
    return unwanted(param.opts[0], value, _accepted(param, value) or _one_line(error.message), hint)


def _kind(param: Any) -> Any:
    """Return the type of an option's value, or of each of its values."""
    annotation = param.type_descriptor.annotation
    return get_args(annotation)[0] if get_args(annotation) else annotation


def _accepted(param: Any, value: str) -> str | None:
    """Describe the values that an option's type accepts; None if the type accepts this one and a callback does not."""
    kind, least, most = _kind(param), param.min, param.max
    if issubclass(kind, Enum):
        return either(choice.value for choice in kind)
    with suppress(ValueError):
        if param.callback is not None and kind(value) is not None:
            return None
    noun = {int: "a whole number", float: "a number"}.get(kind)
    limits = "" if least is None else f", {least} or more" if most is None else f" from {least} to {most}"
    return noun and noun + limits


def _one_line(message: str) -> str:
    line = escape(" ".join(message.split())).removeprefix("Value error, ").removesuffix(".")
    return line[:1].lower() + line[1:]


def _print_help(command: Any, ctx: Any) -> None:
    from mhsa_cli.renderers.kit.console import make_console
    from mhsa_cli.renderers.pictures.help import help_page

    arguments: list[tuple[str, str]] = []
    options: list[tuple[str, str]] = []
    usage = [ctx.command_path, "[OPTIONS]"]
    for param in command.get_params(ctx):
        if param.param_type_name == "argument":
            usage.append(param.metavar)
            names = dict.fromkeys(_ARGUMENT.findall(param.metavar))
            arguments += zip(names, param.help.split("\n"), strict=True)
        elif record := param.get_help_record(ctx):
            options.append((record[0], _option_text(param)))
    commands = command.sections(ctx) if isinstance(command, Group) else []
    usage += ["COMMAND ..."] if commands else []
    examples = [command.epilog] if command.epilog else []
    groups = [group for group in [*commands, ("Arguments", arguments), ("Options", options)] if group[1]]
    console = make_console()
    page = help_page(" ".join(usage), _paragraphs(command), examples, groups, width=console.width)
    console.print(page, crop=False)


def _option_text(param: Any) -> str:
    """Give an option's line of help with its default, if that is a value."""
    if "--help" in param.opts:
        return "show this help and exit"
    default = param.default
    if param.secondary_opts and isinstance(default, bool):
        default = (param.opts if default else param.secondary_opts)[0]
    if isinstance(default, float):
        default = f"{default:g}"
    if default is None or default is False or default == "":
        return str(param.help)
    return f"{param.help} [default: {getattr(default, 'value', default)}]"
