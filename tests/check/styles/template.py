"""A style of writing attention: a right source whose lines have names, and faulty lines to put in their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MARK = "  #: "  # a line's name follows it; a line that is nothing but a name stands for nothing
HERE = "  #!"  # the line on which a fault sits, if that is not the first one of the first slot

Lines = Mapping[str, str]  # slot -> what stands there instead, of one or more lines or none


@dataclass(frozen=True)
class Style:
    """A way of writing attention: its source with named lines, its faults, how it is made and called.

    `make` and `call` are expressions over the source's names, the sizes D, H and T, and in `call` the made `block`, x
    (B, T, D), W (four matrices D, D) and `keep` (T, T), True where a query may see.
    """

    name: str
    entry: str
    text: str
    faults: Mapping[str, Lines]
    make: str
    call: str = "block(x)"
    numpy: bool = False

    def right(self) -> str:
        """Write the right source."""
        return self._write({})[0]

    def wrong(self, faults: Iterable[str]) -> tuple[str, int]:
        """Write the source with faults planted; returns it and the line on which the first one sits.

        Raises: ValueError if two faults want the same line, or a slot does not exist.
        """
        lines: dict[str, str] = {}
        for fault in faults:
            if both := lines.keys() & self.faults[fault].keys():
                raise ValueError(f"{self.name}: {fault} wants lines that another fault has: {sorted(both)}")
            lines.update(self.faults[fault])
        return self._write(lines)

    def slots(self, fault: str) -> set[str]:
        """Name the lines that a fault changes."""
        return set(self.faults[fault])

    def _write(self, lines: Lines) -> tuple[str, int]:
        written: list[str] = []
        first = next(iter(lines), "")
        at, left = 0, set(lines)
        for line in self.text.strip("\n").split("\n"):
            code, mark, slot = f"  {line}".partition(MARK)
            code = code[2:].rstrip()
            if not mark:
                written.append(code)
                continue
            if slot not in lines:
                written += [code] if code else []
                continue
            left.discard(slot)
            indent = " " * (len(line) - len(line.lstrip()))
            new = [indent + one for one in lines[slot].split("\n")] if lines[slot] else []
            if slot == first:
                here = [n for n, one in enumerate(new) if one.endswith(HERE)]
                at = len(written) + (here or [0])[0] + 1
            written += [one.removesuffix(HERE) for one in new]
        if left:
            raise ValueError(f"{self.name} has no lines named {sorted(left)}")
        return "\n".join(written) + "\n", at
