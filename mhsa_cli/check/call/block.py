"""Build and call a block of any kind: a torch module, a class, a function, a factory, an instance.

Everything is inferred: parameters by the names in `name_lexicon`, calls by trying the forms of `call_form`.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from mhsa_cli.check.call import constructor_args, param_dicts
from mhsa_cli.check.call.call_form import CallForm, call_forms, with_masks
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
from mhsa_cli.check.sentences import CallError, make_attempt
from mhsa_cli.check.source.load import Source
from mhsa_cli.check.source.packages import error_line
from mhsa_cli.core.devices import is_out_of_memory
from mhsa_cli.records.check import Note

ARGUMENT_SETS = 24  # constructor arguments that are tried
LONG = 22  # characters of a string that counts as text, not as code


class UncallableError(Exception):
    """All attempts to build or call a block failed; `tried` lists them, `notes` what else was found."""

    def __init__(self, tried: Sequence[Note], notes: Sequence[Note] = ()) -> None:
        super().__init__("; ".join(one.text for one in tried))
        self.tried, self.notes = tried, notes


class Block:
    """A loaded block, and how it is built and called.

    `build` builds it with other sizes; `call_form` is the call that works; `tried` lists the failed attempts.
    """

    def __init__(self, source: Source, given: Mapping[str, Any]) -> None:
        self.source, self.given = source, given
        self._failures: dict[str, list[tuple[str, str]]] = {}  # error -> kind and description of each attempt
        self._exhausted = 0  # attempts that ran out of memory
        self._missing_settings: dict[str, None] = {}
        self.choice = 0  # index of the constructor arguments
        self.call_form = CallForm(())
        self.numpy = is_numpy(source)
        self.built_for_one_length = False

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

    def code_matches(self, pattern: str, *, constructor: bool = True) -> bool:
        """Whether the code of the block, and of what it uses in its file, matches a pattern; comments excluded."""
        names = {self.source.name, *self.source.namespace}
        definitions = _definitions(self.source.text, constructor)
        return any(re.search(pattern, code, re.IGNORECASE) for name, code in definitions if name in names)

    @property
    def mentions_rope(self) -> bool:
        """Whether its code mentions rotary positions."""
        return self.code_matches(r"rope|rotary|rotat|apply_rot|freqs_cis")

    def must_rotate(self, call_form: CallForm) -> bool:
        """Whether it has to rotate: it takes positions, or computes angles itself."""
        return call_form.needs_positions or self.code_matches(r"\b(cos|sin|polar)\b")

    @property
    def mentions_mask(self) -> bool:
        """Whether its code mentions causality, or a mask that is no parameter, as that may be for padding."""
        is_parameter = self.code_matches(r"def \w+\([^)]*(mask|len)", constructor=False)
        return self.code_matches(r"tril|triu|causal") or (not is_parameter and self.code_matches(r"mask"))

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
        call = entry_point(obj)
        return Instance(obj, call, sizes, description, numpy, constructor_args.arguments_for(call, self.given))

    def instances(self, sizes: BlockSizes) -> Iterator[Instance]:
        """Build the block with every possible set of arguments, and record what fails."""
        attention = self.source.attention
        for choice in range(ARGUMENT_SETS):
            try:
                instance = self.build(sizes, choice)
            except IndexError:
                return
            except (Exception, SystemExit) as error:
                unknown = isinstance(error, constructor_args.UnknownArgumentError)
                self.record_failure("build", self._signature(), TypeError(*error.args) if unknown else error)
                if unknown or (isinstance(error, CallError) and inspect.isfunction(attention)):
                    return
                continue
            self.choice = choice
            yield instance
            if not inspect.isclass(attention) and not instance.is_function:
                return

    def _signature(self) -> str:
        try:
            return str(signature_of(self.source.attention))
        except TypeError:
            return "no signature"

    def _construct(self, attention: Any, sizes: BlockSizes, choice: int) -> Instance:
        set_global_sizes(self.source.namespace, sizes)
        signature = signature_of(attention)
        arguments = list(constructor_args.argument_sets(signature, sizes, self.given, self.source.namespace))[choice]
        obj = attention(**arguments)
        written = ", ".join(f"{name}={short_repr(value)}" for name, value in arguments.items())
        description = f"{self.source.name}({written})"
        if obj is None or not (callable(obj) or hasattr(obj, "forward")):
            raise CallError("not_callable", how=description, name=type(obj).__name__)
        if isinstance(obj, nn.Module):
            obj.eval()
        instance = self._instance(obj, sizes, description, self.numpy and not isinstance(obj, nn.Module))
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
            raise IndexError(shaping)
        return Instance(attention, attention, sizes, f"{self.source.name}({', '.join(names)})", self.numpy, supplied)

    def record_failure(self, kind: str, how: str, error: BaseException) -> None:
        """Record a failed attempt: its kind, a key of `sentences.ATTEMPTS`, its description, and its error.

        Raises: the error, if memory ran out for the second time.
        """
        self._exhausted += is_out_of_memory(error)
        if self._exhausted > 1:
            raise error
        self._failures.setdefault(error_line(error), []).append((kind, how))
        if name := constructor_args.missing_setting(error):
            self._missing_settings[name] = None

    @property
    def tried(self) -> list[Note]:
        """List the failed attempts: missing arguments, calls, then builds; those with the same error are joined."""
        unknown = [make_attempt("unknown_setting", name=name) for name in self._missing_settings]
        if not unknown and inspect.isclass(self.source.attention):
            names = constructor_args.unknown_arguments(self.source.attention, self.given, self.source.namespace)
            unknown = [make_attempt("unknown_argument", name=name) for name in names]
        failed = [make_attempt(attempts[0][0], len(attempts) - 1, how=attempts[0][1], message=message)
                  for message, attempts in self._failures.items()]  # fmt: skip
        return [*unknown, *sorted(failed, key=lambda one: one.kind == "build")]

    @property
    def notes(self) -> Sequence[Note]:
        """Note the user's arguments that nothing takes."""
        s = self.source
        return list(constructor_args.unused_arguments(s.attention, self.given, s.namespace, s.text))


@lru_cache(maxsize=4)  # one file is matched many times in a row
def _definitions(text: str, constructor: bool) -> list[tuple[str, str]]:
    """Code of each class and function of a file, without comments and texts, and without __init__ on request."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= LONG:
            node.value = ""
        elif isinstance(node, ast.ClassDef) and not constructor:
            node.body = [ast.Pass() if getattr(one, "name", "") == "__init__" else one for one in node.body]
    return [(node.name, ast.unparse(node)) for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]


def adapt(source: Source, sizes: BlockSizes, given: Mapping[str, Any] | None = None) -> tuple[Block, Instance]:
    """Find out how a block is built and called; returns it with an instance of these sizes.

    Raises: UncallableError with all failed attempts.
    """
    block = Block(source, given or {})
    for size in (sizes, replace(sizes, max_seq_len=sizes.seq_len)):
        block.built_for_one_length = size is not sizes  # some take only sequences of the longest length
        for instance in block.instances(size):
            if _find_call_form(block, instance):
                return block, instance
            if instance.is_function:
                instance.numpy = block.numpy = not block.numpy
                if _find_call_form(block, instance):
                    return block, instance
    raise UncallableError(block.tried, block.notes)


def _find_call_form(block: Block, instance: Instance) -> bool:
    """Try the call forms until one returns a tensor of the right shape; in float64, else in float32."""
    s, generator = instance.sizes, torch.Generator().manual_seed(1)
    x = torch.randn(s.batch_size, s.seq_len, s.d_model, generator=generator, dtype=torch.float64)
    try:
        forms = list(call_forms(instance.call, instance.supplied, block.mentions_rope))
    except (CallError, TypeError) as error:
        block.record_failure("no_call_form", "", error)
        return False
    for dtype in (torch.float64, torch.float32):
        instance.cast(dtype)
        results: list[tuple[int, CallForm]] = []  # how well the output of each fits
        for unmasked in forms:
            for form in (unmasked, *with_masks(unmasked)):
                try:
                    with torch.no_grad():
                        y = instance.run(form, x.to(dtype)).y
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
