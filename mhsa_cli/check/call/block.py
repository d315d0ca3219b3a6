"""Build and call a block of any kind: a torch module, a class, a function, a factory, an instance.

Everything is inferred: parameters by the names in `name_lexicon`, calls by trying the forms of `call_form`.
"""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from typing import Any

import torch
from torch import nn

from mhsa_cli.check.call import constructor_args, param_dicts
from mhsa_cli.check.call.call_form import CallForm, call_forms, with_masks, with_paddings
from mhsa_cli.check.call.fixed_sizes import takes_no_sizes, written_lengths
from mhsa_cli.check.call.heads_used import heads_used
from mhsa_cli.check.call.instance import (
    Instance,
    ProjectedFunction,
    entry_point,
    is_numpy,
    set_global_sizes,
    short_repr,
    sizes_from_attributes,
)
from mhsa_cli.check.call.name_lexicon import BlockSizes, input_kind, normalized, signature_of, size_kind, weight_kind
from mhsa_cli.check.call.roles_by_use import roles_by_use
from mhsa_cli.check.sentences import CallError, make_attempt, make_note
from mhsa_cli.check.source.execute import uncompiled
from mhsa_cli.check.source.load import Source
from mhsa_cli.check.source.packages import error_line
from mhsa_cli.check.source.trace import is_users
from mhsa_cli.core.devices import is_out_of_memory
from mhsa_cli.records.check import Note

ARGUMENT_SETS = 48  # constructor arguments that are tried
TRIED = 5  # failed attempts that are listed


class UncallableError(Exception):
    """All attempts to build or call a block failed; `tried` lists the telling ones, `notes` what else was found."""

    def __init__(self, tried: Sequence[Note], block: Block | None = None) -> None:
        super().__init__("; ".join(one.text for one in tried))
        self.tried, self.block = tried, block
        self.notes: Sequence[Note] = block.notes if block is not None else ()


class NoMoreArgumentsError(Exception):
    """All possible arguments of a block were tried."""


class Block:
    """A loaded block, and how it is built and called.

    `build` builds it with other sizes; `call_form` is the call that works; `tried` lists the failed attempts.
    """

    def __init__(self, source: Source, given: Mapping[str, Any]) -> None:
        self.source, self.given = source, given
        owners = getattr(source.attention, "__mro__", [source.attention])
        self._roles = partial(roles_by_use, source.text, [getattr(one, "__name__", "") for one in owners])
        self._failures: dict[str, list[tuple[str, str]]] = {}  # error -> kind and description of each attempt
        self._reached: dict[str, int] = {}  # error -> the last line that an attempt with it came to
        self._exhausted = 0  # attempts that ran out of memory
        self._missing_settings: dict[str, None] = {}
        self.choice = 0  # index of the constructor arguments
        self.arguments: Mapping[str, Any] = {}  # those of the last construction
        self.tensor_sizes: dict[int, None] = {}  # of the first instance
        self.call_form = CallForm(())
        self.numpy = is_numpy(source)
        self.built_for_one_length = False
        self.other_sizes: BlockSizes | None = None

    def has_size(self, kind: str) -> bool:
        """Whether a size of this kind is a parameter of the block, or a global or a setting that it reads."""
        attention = self.source.attention
        if not (inspect.isclass(attention) or inspect.isfunction(attention)):
            return False
        known = [name for name, value in self.source.namespace.items() if isinstance(value, int)]  # no class Head
        names = list(inspect.signature(attention).parameters)
        configs = any(normalized(name) in constructor_args.CONFIG_NAMES for name in names)
        return configs or any(size_kind(name) == kind for name in (*names, *known))

    @property
    def takes_head_width(self) -> bool:
        """Whether the width of a head is a parameter."""
        names = inspect.signature(self.source.attention).parameters
        return any(size_kind(n) == "d_head" or normalized(n) in constructor_args.PER_HEAD_WIDTHS for n in names)

    def build(self, sizes: BlockSizes, choice: int | None = None) -> Instance:
        """Build the block. Raises: TypeError or CallError if its arguments cannot be inferred; any error of its own."""
        attention = self.source.attention
        choice = self.choice if choice is None else choice
        if inspect.isclass(attention):
            return self._construct(attention, sizes, choice)
        if inspect.isfunction(attention):
            names = list(inspect.signature(attention).parameters)
            factory = all(size_kind(name) or input_kind(name) == "causal" for name in names)
            if names and factory:
                return self._construct(attention, sizes, choice)
            set_global_sizes(self.source.namespace, sizes)
            return self._function(attention, names, sizes, choice)
        obj = copy.deepcopy(attention)
        return self._instance(obj, sizes_from_attributes(obj, sizes), "as it stands in the file", self.numpy)

    def _instance(self, obj: Any, sizes: BlockSizes, description: str, numpy: bool) -> Instance:
        if isinstance(obj, nn.Module):
            obj.eval()
        call = entry_point(obj)
        return Instance(obj, call, sizes, description, numpy, constructor_args.arguments_for(call, self.given))

    def instances(self, sizes: BlockSizes) -> Iterator[Instance]:
        """Build the block with every possible set of arguments, and record what fails."""
        attention = self.source.attention
        for choice in range(ARGUMENT_SETS):
            try:
                instance = self.build(sizes, choice)
            except NoMoreArgumentsError:
                return
            except (Exception, SystemExit) as error:
                self.record_failure("build", self._signature(), error)
                if isinstance(error, CallError) and inspect.isfunction(attention):
                    return
                continue
            self.choice = choice
            self.tensor_sizes = self.tensor_sizes or instance.tensor_sizes
            yield instance
            if not inspect.isclass(attention) and not instance.is_function:
                return

    def _signature(self) -> str:
        try:
            return str(signature_of(self.source.attention))
        except TypeError:
            return "no signature"

    def _arguments(self, sizes: BlockSizes, choice: int) -> dict[str, Any]:
        """Arguments of a constructor. Raises: NoMoreArgumentsError if there are fewer choices."""
        possible = constructor_args.argument_sets(
            signature_of(self.source.attention), sizes, self.given, self.source.namespace, self._roles
        )
        found = next(islice(possible, choice, None), None)
        if found is None:
            raise NoMoreArgumentsError
        return found

    def _construct(self, attention: Any, sizes: BlockSizes, choice: int) -> Instance:
        self.arguments = self._arguments(sizes, choice)
        return self._built_with(attention, sizes, self.arguments)

    def _built_with(self, attention: Any, sizes: BlockSizes, arguments: Mapping[str, Any]) -> Instance:
        set_global_sizes(self.source.namespace, sizes)
        with uncompiled():
            obj = attention(**arguments)
        written = ", ".join(f"{name}={short_repr(value)}" for name, value in arguments.items())
        description = f"{self.source.name}({written})"
        if obj is None or not (callable(obj) or hasattr(obj, "forward")):
            raise CallError("not_callable", how=description, name=type(obj).__name__)
        if takes_no_sizes(self.source.attention, self.source.namespace):
            sizes = sizes_from_attributes(obj, sizes)
        instance = self._instance(obj, sizes, description, self.numpy and not isinstance(obj, nn.Module))
        instance.arguments = arguments
        if any(not slot.registered for slot in instance.slots):
            with uncompiled():
                instance.drop_constants(attention(**arguments))
        if instance.lazy and self.call_form.inputs:
            instance.run(self.call_form, torch.zeros(sizes.batch_size, sizes.seq_len, sizes.d_model))
            instance.read_weights()
        return instance

    def _function(self, attention: Any, names: list[str], sizes: BlockSizes, shaping: int) -> Instance:
        supplied = constructor_args.arguments_for(attention, self.given, any_name=True)
        keys, has_weights = param_dicts.keys_read(self.source.text, attention.__name__), False
        for name, parameter in inspect.signature(attention).parameters.items():
            role, required = weight_kind(name), parameter.default is parameter.empty
            if name in supplied:
                continue
            if name in keys and required:
                supplied[name] = param_dicts.random_dict(keys[name], name, sizes, shaping)
                has_weights = True
            elif role:
                supplied[name] = param_dicts.random_weight(role, sizes, shaping)
                has_weights = True
            elif not required and size_kind(name) != "n_heads":
                continue
            elif (kind := size_kind(name)) and not input_kind(name):
                supplied[name] = sizes.of(kind)
        if shaping >= (param_dicts.SHAPINGS if has_weights else 1):
            raise NoMoreArgumentsError
        return Instance(attention, attention, sizes, f"{self.source.name}({', '.join(names)})", self.numpy, supplied)

    def has_roles_right(self, instance: Instance) -> bool:
        """Whether the constructor got what it means: as many heads are in use as it was built with.

        Asked only where no argument says by its name that it is the number of heads.
        """
        if not inspect.isclass(self.source.attention) or instance.numpy or self.has_size("n_heads"):
            return True
        used = heads_used(instance, self.call_form, _input(instance))
        return used is None or used == instance.sizes.n_heads

    def guesses_sizes(self, instance: Instance) -> bool:
        """Whether each number that is guessed is a size, and not one that scales: another one gives other shapes."""
        if not inspect.isclass(self.source.attention):
            return True
        arguments = self.arguments
        unknown = constructor_args.unknown_arguments(self.source.attention, self.given, self.source.namespace)
        guessed = [n for n in unknown if isinstance(arguments.get(n), int) and not isinstance(arguments[n], bool)]
        return all(self._is_size(instance, {**arguments, name: arguments[name] + 1}, arguments) for name in guessed)

    def _is_size(self, instance: Instance, *arguments: Mapping[str, Any]) -> bool:
        """Whether the block built with other arguments fails, has other shapes, or has the same output."""
        results = []
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            for one in arguments:
                torch.manual_seed(0)
                try:
                    built = self._built_with(self.source.attention, instance.sizes, one)
                    built.cast(instance.dtype)
                    y = built.run(self.call_form, _input(instance)).y
                except (Exception, SystemExit):
                    return True
                results.append((y, [tuple(slot.value.shape) for slot in built.slots]))
        (y, shapes), (other_y, other_shapes) = results
        return shapes != other_shapes or y.shape != other_y.shape or torch.equal(y, other_y)

    def record_failure(self, kind: str, how: str, error: BaseException) -> None:
        """Record a failed attempt: its kind, a key of `sentences.ATTEMPTS`, its description, and its error.

        Raises: the error, if memory ran out for the second time.
        """
        self._exhausted += is_out_of_memory(error)
        if self._exhausted > 1:
            raise error
        self._failures.setdefault(error_line(error), []).append((kind, how))
        self._reached[error_line(error)] = max(self._reached.get(error_line(error), 0), _reached(error))
        if name := constructor_args.missing_setting(error):
            self._missing_settings[name] = None

    @property
    def lacks_settings(self) -> bool:
        """Whether a config was asked for a setting whose value is not known."""
        return bool(self._missing_settings)

    @property
    def tried(self) -> list[Note]:
        """List the most telling attempts: missing arguments, calls by the line they come to, then builds.

        Those with the same error are joined.
        """
        unknown = [make_attempt("unknown_setting", name=name) for name in self._missing_settings]
        if not unknown and inspect.isclass(self.source.attention):
            names = constructor_args.unknown_arguments(self.source.attention, self.given, self.source.namespace)
            unknown = [make_attempt("unknown_argument", name=name) for name in names]
        by_reach = sorted(self._failures, key=lambda one: (self._failures[one][0][0] == "build", -self._reached[one]))
        failed = [make_attempt(attempts[0][0], len(attempts) - 1, how=attempts[0][1], message=message)
                  for message in by_reach for attempts in [self._failures[message]]]  # fmt: skip
        return [*unknown, *failed][:TRIED]

    @property
    def notes(self) -> Sequence[Note]:
        """Note the user's arguments that nothing takes, and sizes that are others than usual."""
        s, sizes = self.source, self.other_sizes
        notes = list(constructor_args.unused_arguments(s.attention, self.given, s.namespace, s.text))
        if sizes is not None:
            notes.append(make_note("other_sizes", d_model=sizes.d_model, d_head=sizes.d_head))
        return notes


def _reached(error: BaseException) -> int:
    """Line of the user's code, not of a helper in it, that raised an error; 0 if there is none."""
    frames = traceback.walk_tb(error.__traceback__)
    return next((line for frame, line in frames if is_users(frame.f_code.co_filename)), 0)


def adapt(
    source: Source, sizes: BlockSizes, given: Mapping[str, Any] | None = None, others: Sequence[BlockSizes] = ()
) -> tuple[Block, Instance]:
    """Find out how a block is built and called; returns it with an instance of these sizes, or of one of `others`.

    Of the others, sizes count only if the next ones can be built and called too: else the block is made for one size.

    Raises: UncallableError with all failed attempts.
    """
    if source.library:
        raise UncallableError([make_attempt("other_library", name=source.name, library=source.library)])
    block = Block(source, given or {})
    for size in (sizes, replace(sizes, max_seq_len=sizes.seq_len)):
        block.built_for_one_length = size is not sizes  # some take only sequences of the longest length
        if (instance := _callable_instance(block, size)) is not None:
            return block, instance
    block.built_for_one_length = False
    for size, larger in pairwise(others):
        if (instance := _callable_instance(block, size)) is not None and _can_be_called(block, larger):
            block.other_sizes = size
            return block, instance
    for size in written_lengths(source.text, sizes, block.tensor_sizes) if others else ():
        block.built_for_one_length = True
        if (instance := _callable_instance(block, size)) is not None:
            return block, instance
    raise UncallableError(block.tried, block)


def _callable_instance(block: Block, sizes: BlockSizes) -> Instance | None:
    """Find arguments and a call form that work; of several arguments, those that mean what their values say."""
    first: tuple[Instance, int, Mapping[str, Any], CallForm] | None = None
    for instance in block.instances(sizes):
        found = _find_call_form(block, instance)
        if not found and instance.is_function:
            instance.numpy = block.numpy = not block.numpy
            found = _find_call_form(block, instance)
        if found and takes_no_sizes(block.source.attention, block.source.namespace):
            used = heads_used(instance, block.call_form, _input(instance))
            instance.sizes = replace(instance.sizes, n_heads=used or instance.sizes.n_heads)
        if found and block.guesses_sizes(instance):
            if block.has_roles_right(instance):
                return instance
            first = first or (instance, block.choice, block.arguments, block.call_form)
    if first is None:
        return None
    instance, block.choice, block.arguments, block.call_form = first
    return instance


def _can_be_called(block: Block, sizes: BlockSizes) -> bool:
    """Whether a block can be built with other sizes, and called as it is."""
    with suppress(Exception, SystemExit), torch.no_grad():
        instance = block.build(sizes)
        instance.cast(torch.float32)
        return instance.run(block.call_form, _input(instance)).y.shape == _input(instance).shape
    return False


def _input(instance: Instance) -> torch.Tensor:
    s, generator = instance.sizes, torch.Generator().manual_seed(1)
    x = torch.randn(s.batch_size, s.seq_len, s.d_model, generator=generator, dtype=torch.float64)
    return x.to(instance.dtype)


def _find_call_form(block: Block, instance: Instance) -> bool:
    """Try the call forms until one returns a tensor of the right shape; in float64, else in float32."""
    x = _input(instance)
    try:
        forms = list(call_forms(instance.call, instance.supplied))
    except (CallError, TypeError) as error:
        block.record_failure("no_call_form", "", error)
        return False
    for dtype in (torch.float64, torch.float32):
        instance.cast(dtype)
        results: list[tuple[int, CallForm]] = []  # how well the output of each fits
        for unmasked in forms:
            for form in (unmasked, *with_masks(unmasked), *with_paddings(unmasked)):
                try:
                    with torch.no_grad():
                        y = instance.run(form, x.to(dtype)).y
                        if form.padding is not None and not _hides_nothing(instance, form, x.to(dtype)):
                            continue
                except (Exception, SystemExit) as error:
                    block.record_failure("call", form.describe(), error)
                    continue
                results.append(((tuple(y.shape) == tuple(x.shape)) * 2 + (y.numel() == x.numel()), form))
                break
            if results and results[-1][0] == 3:
                break
        if results:
            block.call_form = max(results, key=lambda one: one[0])[1]
            instance.read_weights()
            return True
    return False


def _hides_nothing(instance: Instance, form: CallForm, x: torch.Tensor) -> bool:
    """Whether a padding mask lets tokens attend: another first token changes the others, and not all of them alike."""
    changed = x.clone()
    changed[:, 0] = x[:, 0].roll(1, -1)
    change = (instance.run(form, changed).y - instance.run(form, x).y)[:, 1:]
    return bool(change.isfinite().all()) and not torch.allclose(change, change[:, :1])


def with_projections(block: Block, instance: Instance) -> Instance:
    """Put projections before a function of q, k and v, so that it is graded as one head; others are unchanged."""
    kinds = [input_kind(name) for name in block.call_form.inputs]
    if instance.slots or sorted(kinds) != ["k", "q", "v"] or not inspect.isroutine(instance.obj):
        return instance
    sizes = replace(instance.sizes, n_heads=1)
    obj = ProjectedFunction(instance.call, block.call_form.inputs, sizes.d_model, instance.numpy)
    block.call_form = replace(block.call_form, inputs=("x",))
    description = f"{block.source.name} of q, k and v"
    return replace(
        instance, obj=obj, call=obj.__call__, sizes=sizes, description=description, supplied=dict(instance.supplied)
    )
