"""Faults planted one by one, and two by two, into right sources of many styles: what `mhsa check` must name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.check.styles.annotated import ANNOTATED
from tests.check.styles.arrays import NUMPY, NUMPY_CLASS
from tests.check.styles.changed import IN_TWO, OFF, RENAMED, SECOND, InTwo, other_names
from tests.check.styles.framed import POSTNORM, PRENORM
from tests.check.styles.fused import FUSED
from tests.check.styles.parameters import PARAMETERS
from tests.check.styles.per_head import PER_HEAD
from tests.check.styles.rotary import ROPE, ROPE_COMPLEX, ROPE_HALF
from tests.check.styles.template import Style
from tests.check.styles.three import THREE

STYLES = {
    style.name: style
    for style in (FUSED, THREE, NUMPY, NUMPY_CLASS, PARAMETERS, PER_HEAD, ANNOTATED, ROPE, ROPE_HALF, ROPE_COMPLEX)
}
FRAMED = {style.name: style for style in (PRENORM, POSTNORM)}

# Of a fault: other names for the same numbers.
ALIKE = {
    "scale_twice": {"scale_d_head_unrooted"},
    "rope_over_heads": {"rope_ignored"},  # q and k of a head by one angle: their product is that of no angle
    "parameter_unused": {"out_bias_missing"},
}

# They do not show in the output of an ordinary call.
SILENT = {
    "dropout_in_eval",
    "dropout_on_scores",
    "heads_not_dividing",
    "input_changed_in_place",
    "mask_argument_raises",
    "mask_not_a_buffer",
    "parameter_unused",
    "parameters_not_registered",
    "projections_created_in_forward",
    "state_between_calls",
    "weights_after_dropout",
    "weights_not_used",
}

PAIRS = (
    ("scale_d_model", "softmax_over_queries"),
    ("scale_d_model", "mask_no_effect"),
    ("scale_d_model", "mask_sees_next"),
    ("scale_d_model", "merge_by_view"),
    ("scale_d_model", "split_and_merge_by_view"),
    ("scale_d_model", "out_missing"),
    ("scale_none", "softmax_over_heads"),
    ("scale_none", "split_by_view"),
    ("scale_none", "mask_hides_self"),
    ("scale_multiplied", "mask_fill_zero"),
    ("scale_d_head_unrooted", "merge_interleaved"),
    ("softmax_over_queries", "mask_sees_next"),
    ("softmax_over_queries", "merge_by_view"),
    ("softmax_over_queries", "out_missing"),
    ("softmax_over_heads", "out_twice"),
    ("mask_transposed", "out_missing"),
    ("mask_no_effect", "merge_by_view"),
    ("mask_inverted", "out_twice"),
)


@dataclass(frozen=True)
class Planted:
    """A source with a fault in it, on `line` (from 1); two faults are joined by " + ", the line is the first one's.

    `beside` are the files beside it, by name; `file` is the one of them with the fault, "" if the source has it.
    """

    fault: str
    style: str
    source: str
    entry: str
    line: int
    beside: Mapping[str, str] = field(default_factory=dict)
    file: str = ""

    @property
    def faults(self) -> tuple[str, ...]:
        """List the faults in it."""
        return tuple(self.fault.split(" + "))

    def accepts(self, named: set[str]) -> bool:
        """Tell whether every fault in it is among those named, under one of its names."""
        alike = {**ALIKE, **other_names(self.style)}
        return all(named & {fault, *alike.get(fault, ())} for fault in self.faults)


def plant(style: Style, *faults: str) -> Planted:
    """Plant faults into a style."""
    source, line = style.wrong(faults)
    return Planted(" + ".join(faults), style.name, source, style.entry, line)


def sources() -> Iterator[Planted]:
    """Give every single fault in every style that has it."""
    for style in STYLES.values():
        for fault in style.faults:
            yield plant(style, fault)


def pairs() -> Iterator[Planted]:
    """Give two faults at once, in the styles with a line for each."""
    for style in (FUSED, THREE):
        for one, other in PAIRS:
            if not style.slots(one) & style.slots(other):
                yield plant(style, one, other)


def framed() -> Iterator[Planted]:
    """Give faults inside a residual and a LayerNorm."""
    for style in FRAMED.values():
        for fault in style.faults:
            yield plant(style, fault)


def plant_in_two(style: InTwo, fault: str) -> Planted:
    """Plant a fault into a style of two files."""
    first, second, in_second, line = style.wrong([fault])
    beside = {f"{SECOND}.py": second}
    return Planted(fault, style.name, first, style.style.entry, line, beside, f"{SECOND}.py" if in_second else "")


def changed() -> Iterator[Planted]:
    """Give every single fault with parts that are off, with unfamiliar names, and in two files."""
    for style in (*OFF.values(), *RENAMED.values()):
        for fault in style.faults:
            yield plant(style, fault)
    for two in IN_TWO.values():
        for fault in two.style.faults:
            yield plant_in_two(two, fault)
