"""Code that raises whatever it is given: where it raises and what, if no wrong guess of ours can be the reason."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mhsa_cli.check.call import constructor_args
from mhsa_cli.check.call.block import Block, NoMoreArgumentsError, UncallableError
from mhsa_cli.check.call.call_form import CallForm, call_forms, with_masks, with_paddings
from mhsa_cli.check.call.fixed_sizes import written_lengths
from mhsa_cli.check.call.instance import Instance
from mhsa_cli.check.call.name_lexicon import BlockSizes, input_kind
from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.library_errors import is_about_device, is_about_none, is_about_number, is_view_of_other_strides
from mhsa_cli.check.sentences import WAYS_OUT, CallError, render
from mhsa_cli.check.source.packages import error_line
from mhsa_cli.check.source.trace import is_users, tracing
from mhsa_cli.records.check import NamedFault

# Errors of code that fails on any input, and those that an input of the wrong shape may cause.
OF_CODE = (NameError, AttributeError, TypeError, NotImplementedError, RecursionError)
OF_SHAPE = (RuntimeError, ValueError, IndexError)
LENGTHS = (1, 9, 16)  # other numbers of tokens that are tried


@dataclass(frozen=True)
class Raised:
    """What an attempt raised: where in the user's code, after how many instructions of it, and on which input.

    `line` is 0 if no line of the user's raised it. `projected`: the input went through a projection before, so its
    shape is what the block wants.
    """

    error: BaseException
    file: str
    line: int
    reached: int
    projected: bool
    form: CallForm | None = None

    @property
    def place(self) -> tuple[str, int, type[BaseException]]:
        return self.file, self.line, type(self.error)


class _Projections(TorchFunctionMode):
    """Notes whether an input is multiplied by a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        if name in ("linear", "matmul", "__matmul__", "__rmatmul__", "einsum", "addmm", "bmm", "mm"):
            self.found = self.found or any(isinstance(one, nn.Parameter) for one in _flat(args))
        return result


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        yield from _flat(value) if isinstance(value, list | tuple) else [value]


def fault_of(error: UncallableError, sizes: BlockSizes, others: Sequence[BlockSizes]) -> NamedFault | None:
    """Name the fault of a block that cannot be called; None if it may be called in a way that was not tried."""
    block = error.block
    if block is None or block.lacks_settings or any(note.kind == "failed" for note in block.source.notes):
        return None
    try:
        unknown = constructor_args.unknown_arguments(block.source.attention, block.given, block.source.namespace)
    except TypeError:
        return None
    if unknown and inspect.isclass(block.source.attention):
        return None
    first = _raised(block, sizes)
    if first is None:
        return None
    if isinstance(first.error, RecursionError):  # it would take long at each size
        return _named(block, first)
    least = 2 if _is_view(first.error) else 1  # a view of one token is one of adjacent memory
    lengths = [replace(sizes, seq_len=T, max_seq_len=max(T, sizes.max_seq_len)) for T in LENGTHS if least <= T]
    lengths += written_lengths(block.source.text, sizes, block.tensor_sizes)
    found = [_raised(block, one) for one in (*lengths, *others)]
    return None if any(one is None or one.place != first.place for one in found) else _named(block, first)


def mask_fault(block: Block, instance: Instance, call_form: CallForm, x: Tensor) -> NamedFault:
    """Name what a mask argument raises for every mask, and where: the attempt that comes furthest shows it."""
    raised = [one for form in with_masks(call_form) if (one := _attempt(instance, form, x))]
    return _fault(block, "mask_argument_raises", max(raised, key=lambda one: (one.line > 0, one.reached)))


def _named(block: Block, raised: Raised) -> NamedFault:
    if isinstance(raised.error, CallError):
        return _fault(block, "returns_nothing", raised)
    return _fault(block, "constructor_raises" if raised.form is None else "forward_raises", raised)


def _fault(block: Block, name: str, raised: Raised) -> NamedFault:
    fault, message = FAULTS[name], error_line(raised.error)
    facts = {"error": type(raised.error).__name__, "message": message}
    instead = WAYS_OUT["view"] if _is_view(raised.error) else fault.instead
    if name == "mask_argument_raises" and isinstance(raised.error, OF_CODE):  # no other mask would help
        instead = FAULTS["forward_raises"].instead
    place = block.source.place_in(raised.file, raised.line) if raised.line else ""
    return NamedFault(name, render(fault.says, facts), instead, raised.line or None, place, None, fault.title, facts,
                      file=block.source.other_file(raised.file))  # fmt: skip


def _is_view(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and is_view_of_other_strides(error)


def _raised(block: Block, sizes: BlockSizes) -> Raised | None:
    """What a block raises in its constructor or in a call, whatever the arguments; None if that is not certain."""
    if not (inspect.isclass(block.source.attention) or inspect.isfunction(block.source.attention)):
        return None
    built: list[Raised] = []
    for choice in range(3):  # the likeliest arguments
        try:
            with tracing() as trace:
                instance = block.build(sizes, choice)
        except NoMoreArgumentsError:
            break
        except (Exception, SystemExit) as error:
            built.append(Raised(error, *_where(error), len(trace.ran), False))
            continue
        return _raised_by_call(block, instance)
    if not built or not built[0].line or any(one.place != built[0].place for one in built):
        return None
    return built[0] if _is_of_code(block, built[0], []) else None


def _raised_by_call(block: Block, instance: Instance) -> Raised | None:
    try:
        forms = list(call_forms(instance.call, instance.supplied))
    except (CallError, TypeError):
        return None
    if any(form.memory or set(form.inputs) == {""} for form in forms):  # its parameters are guessed
        return None
    s = instance.sizes
    x = torch.randn(s.batch_size, s.seq_len, s.d_model, generator=torch.Generator().manual_seed(1))
    first = forms[0]
    sure = not (first.mask_name in first.fixed or first.padding_names or first.angle_names or first.needs_positions)
    attempts: list[Raised | None] = []
    for plain in forms:
        tried = [plain] if sure else [plain, *with_masks(plain), *with_paddings(plain)]
        attempts += [_attempt(instance, form, x.to(dtype)) for form in tried for dtype in _dtypes(instance)]
    raised = [one for one in attempts if one is not None]
    if len(raised) < len(attempts):
        return None
    furthest = max(raised, key=lambda one: one.reached)
    batched = [one for one in raised if one.form is not None and not one.form.unbatched]
    alike = batched if sure else [one for one in raised if one.reached == furthest.reached]
    if not furthest.line or any(one.place != furthest.place for one in alike):
        return None
    passed = [value for form in forms for value in form.fixed.values()]
    if isinstance(furthest.error, CallError):
        return furthest if furthest.error.kind == "returned_nothing" else None
    of_shape = sure and furthest.projected and _is_of_shape(block, furthest)
    return furthest if of_shape or _is_of_code(block, furthest, passed) else None


def _is_of_shape(block: Block, raised: Raised) -> bool:
    """Whether an error is one of a shape that no other input and no other size would have."""
    if not isinstance(raised.error, OF_SHAPE) or _is_refusal(raised) or is_about_device(raised.error):
        return False
    kinds = sorted(input_kind(name) for name in raised.form.inputs) if raised.form else []
    return (len(kinds) == 1 or kinds == ["k", "q", "v"]) and not constructor_args.sizes_by_default(
        block.source.attention, block.arguments
    )


def _dtypes(instance: Instance) -> Iterator[torch.dtype]:
    for dtype in (torch.float64, torch.float32):
        instance.cast(dtype)
        yield dtype


def _attempt(instance: Instance, form: CallForm, x: Tensor) -> Raised | None:
    """What a call raises, also that it returns nothing; None if it returns."""
    projections = _Projections()
    try:
        with tracing() as trace, torch.no_grad(), projections:
            instance.run(form, x)
    except (Exception, SystemExit) as error:
        nothing = isinstance(error, CallError) and error.kind == "returned_nothing"
        where = _definition(instance) if nothing else _where(error)
        return Raised(error, *where, len(trace.ran), projections.found, form)
    return None


def _where(error: BaseException) -> tuple[str, int]:
    """File and line of the deepest frame that is the user's, or the first of endless recursion; line 0 if none is."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    found = [place for place in frames if is_users(place[0])] or [("", 0)]
    return found[0 if isinstance(error, RecursionError) else -1]


def _definition(instance: Instance) -> tuple[str, int]:
    """File and line of the definition of what is called; line 0 if it is not the user's."""
    called = instance.obj.forward if instance.module is not None else instance.call
    code = getattr(inspect.unwrap(called), "__code__", None)
    if code is None or not is_users(code.co_filename):
        return "", 0
    lines = linecache.getlines(code.co_filename)
    first = code.co_firstlineno
    while first < len(lines) and not re.match(r"\s*(async )?def ", lines[first - 1]):  # below its decorators
        first += 1
    return code.co_filename, first


def _is_refusal(raised: Raised) -> bool:
    """Whether the line is the user's own `raise` or `assert`."""
    text = linecache.getline(raised.file, raised.line)
    return bool(re.search(r"\b(raise|assert)\b", text))


def _is_of_code(block: Block, raised: Raised, passed: Sequence[Any]) -> bool:
    """Whether an error does not depend on the input: a name or an attribute that does not exist, a wrong call."""
    error = raised.error
    if not isinstance(error, OF_CODE) or _is_refusal(raised) is not isinstance(error, NotImplementedError):
        return False
    if is_about_device(error) or is_about_number(error) or isinstance(getattr(error, "obj", None), int | float):
        return False
    if is_about_none(error) and (None in passed or raised.form is not None):
        return False  # what we pass, or what another method of the block sets
    if isinstance(error, AttributeError) and raised.form is not None:
        return not _is_input(error) and not _is_set_elsewhere(block, error.name or "")
    return True


def _is_input(error: AttributeError) -> bool:
    """Whether the attribute is asked of what is passed, which may be meant to be no tensor."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if is_users(frame.f_code.co_filename))
    frame = next(frames, None)
    names = [] if frame is None else frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return isinstance(error.obj, Tensor) and any(frame and frame.f_locals.get(name) is error.obj for name in names)


def _is_set_elsewhere(block: Block, name: str) -> bool:
    """Whether a method that neither constructs nor calls sets an attribute: the block then has to be set up first."""
    for node in ast.walk(ast.parse(block.source.text)):
        if isinstance(node, ast.FunctionDef) and node.name not in ("__init__", "forward", "__call__"):
            stored = (one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and _is_stored(one))
            if name in stored:
                return True
    return False


def _is_stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)
