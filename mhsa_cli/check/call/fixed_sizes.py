"""Sizes that the code of a block fixes: a length that is written in it, a width that its constructor does not take."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from mhsa_cli.check.call.name_lexicon import BlockSizes, size_kind

MOST_TOKENS, TRIED = 512, 4  # numbers in the code that may be a length, and how many of them are tried


def written_lengths(text: str, sizes: BlockSizes, tensor_sizes: Iterable[int] = ()) -> Iterator[BlockSizes]:
    """Yield sizes with each number of a file, or of its tensors, that may be a length; none equals another size."""
    written = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    numbers = [*tensor_sizes, *written]
    taken = {sizes.d_model, sizes.n_heads, sizes.d_head, sizes.batch_size, sizes.seq_len}
    usual = {one: None for one in numbers if type(one) is int and 2 < one <= MOST_TOKENS and one not in taken}
    for length in list(usual)[:TRIED]:
        yield replace(sizes, seq_len=length, max_seq_len=length)


def takes_no_sizes(attention: Any, namespace: Mapping[str, Any]) -> bool:
    """Whether a class is constructed without arguments and reads no global sizes: its sizes are its own."""
    if not inspect.isclass(attention):
        return False
    parameters = inspect.signature(attention).parameters.values()
    numbers = [name for name, value in namespace.items() if isinstance(value, int | float)]
    required = any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
    kinds = {size_kind(name) for name in (*(p.name for p in parameters), *numbers)}
    return not required and not kinds & {"d_model", "n_heads", "d_head", "d_out"}
