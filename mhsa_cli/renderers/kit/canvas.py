"""Lines made of dots: braille (2 by 4 dots a cell), or ASCII with three heights a cell."""

from __future__ import annotations

from rich.style import Style

from mhsa_cli.renderers.kit.text_lines import Grid

# Dot bits of U+2800, by column and row inside the cell.
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# ASCII: which heights of a cell are hit (bit 0 = top) -> one character.
_HEIGHTS = {1: "'", 2: "-", 4: ".", 3: "'", 6: ".", 5: ":", 7: "|"}


class Canvas:
    """Collect the dots of one line on `columns` by `rows` cells; x runs right, y runs up, both 0..1."""

    def __init__(self, columns: int, rows: int, *, braille: bool) -> None:
        self.columns, self.rows, self.braille = columns, rows, braille
        self.per_x, self.per_y = (2, 4) if braille else (1, 3)
        self.width, self.height = columns * self.per_x, rows * self.per_y
        self.cells: dict[tuple[int, int], int] = {}

    def dot_at(self, x: float, y: float) -> tuple[int, int]:
        """Find the dot nearest to a place; row 0 is the top."""
        return round(x * (self.width - 1)), round((1.0 - y) * (self.height - 1))

    def dot(self, x: int, y: int) -> None:
        """Set one dot."""
        if self.braille:
            cell, bit = (x >> 1, y >> 2), _BRAILLE[x & 1][y & 3]
        else:
            cell, bit = (x, y // 3), 1 << y % 3
        self.cells[cell] = self.cells.get(cell, 0) | bit

    def line(self, start: tuple[int, int], stop: tuple[int, int]) -> None:
        """Set every dot between two dots, ends included."""
        (x0, y0), (x1, y1) = start, stop
        steps = max(abs(x1 - x0), abs(y1 - y0))
        for number in range(steps + 1):
            part = number / steps if steps else 0.0
            self.dot(round(x0 + (x1 - x0) * part), round(y0 + (y1 - y0) * part))

    def spot(self, at: tuple[int, int]) -> None:
        """Set a small square of dots, so that a point with no neighbours can be seen."""
        size = 2 if self.braille else 1
        for x in range(at[0], min(at[0] + size, self.width)):
            for y in range(at[1], min(at[1] + size, self.height)):
                self.dot(x, y)

    def paint(self, grid: Grid, left: int, top: int, style: Style, letter: str = "") -> None:
        """Put the cells on a grid; with `letter` every cell shows it, to tell lines apart without colour."""
        for (column, row), bits in self.cells.items():
            char = letter or (chr(0x2800 + bits) if self.braille else _HEIGHTS[bits])
            grid.put(left + column, top + row, char, style)
