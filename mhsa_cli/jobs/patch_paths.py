"""Paths and heads to patch, as written on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.records.heads import EMBEDDING, PARTS, HeadMaps, Mlp, OneWriter, Part, Path, Reader, Together
from mhsa_cli.text import Head

_HEAD = re.compile(r"l(\d{1,4})\.h(\d{1,5})", re.ASCII)
_MLP = re.compile(r"l(\d{1,4})\.mlp", re.ASCII)
_READER = re.compile(r"(.*h\d+)(?:\.([qkv]))?", re.ASCII)
EXAMPLE = "for example: L0.H1:L1.H2.k, L0.H1:logits, or L0.H1 alone"
T = TypeVar("T")


def read_patches(text: str, maps: HeadMaps, option: str) -> tuple[list[Path], list[Head]]:
    """Parse `WRITER:READER` as paths and `L0.H1` as heads, several separated by commas.

    A writer is a head, `L0.MLP` or `embedding`; a reader is `L1.H2.q`, `.k` or `.v`, `L1.H2` for each of the three, or
    `logits`. Several are joined by `+`, as in `L0.H1+L0.H2:L1.H2+L1.H3.k`.
    Raises: UsageError for anything else, or a head that the run does not have.
    """
    known = [head.address for head in maps.heads]
    paths: list[Path] = []
    heads: list[Head] = []
    for word in dict.fromkeys(text.replace(" ", ",").split(",")):
        written, colon, read = word.lower().partition(":")
        if colon:
            writer = _joined([_writer(name, word, known, option) for name in written.split("+")])
            paths += [Path(writer, *reader) for reader in _readers(read, word, known, option)]
        elif word:
            heads.append(_head(written, word, known, option))
    if not paths and not heads:
        raise UsageError(f"{option}: found no path", EXAMPLE)
    return list(dict.fromkeys(paths)), heads


def _joined(found: Sequence[T]) -> T | Together[T]:
    unique = tuple(dict.fromkeys(found))
    return unique[0] if len(unique) == 1 else Together(unique)


def _readers(read: str, word: str, known: Sequence[Head], option: str) -> list[tuple[Reader | None, Part | None]]:
    """Parse the reader of a path with its part, or with each part if it names none. Raises: UsageError."""
    if read == "logits":
        return [(None, None)]
    match = _READER.fullmatch(read)
    if match is None:
        raise unwanted(option, word, "a reader such as L1.H2.q, L1.H2.k, L1.H2.v or logits", EXAMPLE)
    reader = _joined([_head(name, word, known, option) for name in match[1].split("+")])
    return [(reader, part) for part in PARTS if match[2] in (None, part)]


def _writer(name: str, word: str, known: Sequence[Head], option: str) -> OneWriter:
    """Parse one writer; whether the model has such an MLP is not known here."""
    if name in ("embedding", "embed"):
        return EMBEDDING
    mlp = _MLP.fullmatch(name)
    return Mlp(int(mlp[1])) if mlp is not None else _head(name, word, known, option)


def _head(name: str, word: str, known: Sequence[Head], option: str) -> Head:
    """Parse the address of a head of the run. Raises: UsageError."""
    match = _HEAD.fullmatch(name)
    head = None if match is None else Head(int(match[1]), int(match[2]))
    if head is None or head not in known:
        raise unwanted(option, word, f"heads of this run, L0.H0 to {known[-1]}", EXAMPLE)
    return head
