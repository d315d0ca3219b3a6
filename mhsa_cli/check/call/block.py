"""Build and call somebody's attention, whatever its form: a torch module, a class, a function, a factory, an instance.

Nothing is asked: names are looked up in `name_lexicon`, the calls of `call_forms` are tried, and what worked is said.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from mhsa_cli.check.call import call_plan, constructor_args, param_dicts
from mhsa_cli.check.call.call_forms import plans
from mhsa_cli.check.call.call_plan import Plan, raised
from mhsa_cli.check.call.instance import Built, entry, is_numpy, set_globals, short, sizes_of
from mhsa_cli.check.call.name_lexicon import INPUTS, SIZES, WEIGHTS, Sizes, kind_of, plain, signature_of
from mhsa_cli.check.locate import lines
from mhsa_cli.check.sentences import CallError, attempted
from mhsa_cli.check.source.load import Source
from mhsa_cli.core.devices import is_out_of_memory
from mhsa_cli.records.check import Note

CHOICES = 24  # ways to fill a constructor that are tried


class UncallableError(Exception):
    """Nothing that was tried worked. `tried` holds each try and what came of it, `notes` what else was found."""

    def __init__(self, tried: Sequence[Note], notes: Sequence[Note] = ()) -> None:
        super().__init__("; ".join(one.text for one in tried))
        self.tried, self.notes = tried, notes


class Block:
    """Somebody's attention, and how it is built with given sizes and called.

    `build` gives it with other sizes; `plan` is the way to call that worked; `tried` is what did not.
    """

    def __init__(self, source: Source, given: Mapping[str, Any]) -> None:
        self.source, self.given = source, given
        self._tries: dict[str, list[tuple[str, str]]] = {}  # what came of it -> kinds of tries, and how each was
        self._exhausted = 0  # tries that took all memory
        self._lacks: dict[str, None] = {}  # what its config was asked for in vain
        self.choice = 0  # of the ways to fill its constructor
        self.plan = Plan(())
        self.numpy = is_numpy(source)
        self.built_for_one_length = False

    def takes(self, kind: str) -> bool:
        """Tell whether a size of this kind is a parameter of it, or a global or a setting that it reads."""
        attention = self.source.attention
        known = [name for name, value in self.source.namespace.items() if isinstance(value, int)]  # no class Head
        if not (inspect.isclass(attention) or inspect.isfunction(attention)):
            return False
        names = list(inspect.signature(attention).parameters)
        configs = any(plain(name) in constructor_args.CONFIGS for name in names)
        return configs or any(kind_of(name, SIZES) == kind for name in (*names, *known))

    @property
    def takes_head_width(self) -> bool:
        """Tell whether the width of a head is an argument of its own."""
        names = inspect.signature(self.source.attention).parameters
        return any(kind_of(n, SIZES) == "d_head" or plain(n) in constructor_args.OF_ONE_HEAD for n in names)

    def speaks(self, pattern: str, *, constructor: bool = True) -> bool:
        """Tell whether its code, and that of what it needs of its file, matches a pattern."""
        names = {self.source.name, *self.source.namespace}
        return lines.speaks(self.source.text, names, pattern, constructor=constructor)

    @property
    def turning(self) -> bool:
        """Tell whether its code speaks of rotary positions."""
        return self.speaks(r"rope|rotary|rotat|apply_rot|freqs_cis")

    def must_turn(self, plan: Plan) -> bool:
        """Tell whether it has to rotate: it asks for positions, or computes angles itself."""
        return plan.needs_positions or self.speaks(r"\b(cos|sin|polar)\b")

    @property
    def masking(self) -> bool:
        """Tell whether its code speaks of causality, or of a mask that is not an argument: that may be for padding."""
        given = self.speaks(r"def \w+\([^)]*(mask|len)", constructor=False)
        return self.speaks(r"tril|triu|causal") or (not given and self.speaks(r"mask"))

    def build(self, sizes: Sizes, choice: int | None = None) -> Built:
        """Build it. Raises: TypeError or CallError if nobody can guess how; whatever its constructor raises."""
        attention = self.source.attention
        choice = self.choice if choice is None else choice
        if inspect.isclass(attention):
            return self._construct(attention, sizes, choice)
        if inspect.isfunction(attention):
            names = list(inspect.signature(attention).parameters)
            if names and all(kind_of(name, SIZES) or kind_of(name, INPUTS) == "causal" for name in names):  # a factory
                return self._construct(attention, sizes, choice)
            set_globals(self.source.namespace, sizes)
            return self._function(attention, names, sizes, choice)
        thing = copy.deepcopy(attention)
        return self._built(thing, sizes_of(thing, sizes), "as it stands in the file", self.numpy)

    def _built(self, thing: Any, sizes: Sizes, says: str, numpy: bool) -> Built:
        call = entry(thing)
        return Built(thing, call, sizes, says, numpy, constructor_args.given_to(call, self.given))

    def choices(self, sizes: Sizes) -> Iterator[Built]:
        """Build it in every way that its parameters allow; what fails is kept in `tried`."""
        attention = self.source.attention
        for choice in range(CHOICES):
            try:
                built = self.build(sizes, choice)
            except IndexError:
                return
            except (Exception, SystemExit) as error:
                unknown = isinstance(error, constructor_args.UnknownSizeError)
                self.failed("build", self._signature(), TypeError(*error.args) if unknown else error)
                if unknown or (isinstance(error, CallError) and inspect.isfunction(attention)):
                    return
                continue
            self.choice = choice
            yield built
            if not inspect.isclass(attention) and not built.is_function:
                return

    def _signature(self) -> str:
        try:
            return str(signature_of(self.source.attention))
        except TypeError:
            return "no signature"

    def _construct(self, attention: Any, sizes: Sizes, choice: int) -> Built:
        set_globals(self.source.namespace, sizes)
        ways = list(constructor_args.fillings(signature_of(attention), sizes, self.given, self.source.namespace))
        thing = attention(**ways[choice])
        says = f"{self.source.name}({', '.join(f'{name}={short(value)}' for name, value in ways[choice].items())})"
        if thing is None or not (callable(thing) or hasattr(thing, "forward")):
            raise CallError("not_callable", how=says, name=type(thing).__name__)
        if isinstance(thing, nn.Module):
            thing.eval()
        built = self._built(thing, sizes, says, self.numpy and not isinstance(thing, nn.Module))
        if built.lazy and self.plan.inputs:
            built.run(self.plan, torch.zeros(sizes.batch_size, sizes.seq_len, sizes.d_model))
            built.read_weights()
        return built

    def _function(self, attention: Any, names: list[str], sizes: Sizes, form: int) -> Built:
        supplied = constructor_args.given_to(attention, self.given, any_name=True)
        asked, some = param_dicts.keys_asked(self.source.text, attention.__name__), False
        for name, parameter in inspect.signature(attention).parameters.items():
            role, required = kind_of(name, WEIGHTS), parameter.default is parameter.empty
            if name in supplied:
                continue
            if name in asked and required:
                supplied[name] = param_dicts.filled(asked[name], name, sizes, form)
                some = True
            elif role:
                supplied[name] = param_dicts.drawn(role, sizes, form)
                some = True
            elif not required and kind_of(name, SIZES) != "n_heads":
                continue
            elif (kind := kind_of(name, SIZES)) and not kind_of(name, INPUTS):
                supplied[name] = sizes.of(kind)
        if form >= (param_dicts.FORMS if some else 1):
            raise IndexError(form)
        return Built(attention, attention, sizes, f"{self.source.name}({', '.join(names)})", self.numpy, supplied)

    def failed(self, kind: str, how: str, error: BaseException) -> None:
        """Keep what was tried, a key of `sentences.TRIED`, and how it was, and what came of it.

        Raises: the error, if memory ran out for the second time.
        """
        self._exhausted += is_out_of_memory(error)
        if self._exhausted > 1:
            raise error
        self._tries.setdefault(raised(error), []).append((kind, how))
        if name := constructor_args.lacked(error):
            self._lacks[name] = None

    @property
    def tried(self) -> list[Note]:
        """List what was tried and failed, ways with one outcome together; guesses first, then the latest stage."""
        guesses = [attempted("guess_setting", name=name) for name in self._lacks]
        if not guesses and inspect.isclass(self.source.attention):
            names = constructor_args.unknown(self.source.attention, self.given, self.source.namespace)
            guesses = [attempted("guess_parameter", name=name) for name in names]
        tries = [attempted(ways[0][0], len(ways) - 1, how=ways[0][1], said=said) for said, ways in self._tries.items()]
        return [*guesses, *sorted(tries, key=lambda one: one.kind == "build")]

    @property
    def notes(self) -> Sequence[Note]:
        """Say what the user gave that nothing takes."""
        s = self.source
        return list(constructor_args.left_over(s.attention, self.given, s.namespace, s.text))


def adapt(source: Source, sizes: Sizes, given: Mapping[str, Any] | None = None) -> tuple[Block, Built]:
    """Find out how a block is built and called; returns it, and one built with these sizes.

    Raises: UncallableError with everything that was tried.
    """
    block = Block(source, given or {})
    for size in (sizes, replace(sizes, max_seq_len=sizes.seq_len)):
        block.built_for_one_length = size is not sizes  # some take rows of just the longest length
        for built in block.choices(size):
            if _find_plan(block, built):
                return block, built
            if built.is_function:
                built.numpy = block.numpy = not block.numpy
                if _find_plan(block, built):
                    return block, built
    raise UncallableError(block.tried, block.notes)


def _find_plan(block: Block, built: Built) -> bool:
    """Try the ways to call until one gives a tensor of the right size; in float64, else in float32."""
    s, generator = built.sizes, torch.Generator().manual_seed(1)
    x = torch.randn(s.batch_size, s.seq_len, s.d_model, generator=generator, dtype=torch.float64)
    try:
        ways = list(plans(built.call, built.supplied, block.turning))
    except (CallError, TypeError) as error:
        block.failed("no_way_to_call", "", error)
        return False
    for dtype in (torch.float64, torch.float32):
        built.cast(dtype)
        answers: list[tuple[int, Plan]] = []  # how well each fits
        for way in ways:
            for plan in (way, *call_plan.masked(way)):
                try:
                    with torch.no_grad():
                        y = built.run(plan, x.to(dtype)).y
                except (Exception, SystemExit) as error:
                    block.failed("call", plan.says(), error)
                    continue
                answers.append(((tuple(y.shape) == tuple(x.shape)) * 2 + (y.numel() == x.numel()), plan))
                break
            if answers and answers[-1][0] == 3:
                break
        if answers:
            block.plan = max(answers, key=lambda one: one[0])[1]
            built.read_weights()
            return True
    return False
