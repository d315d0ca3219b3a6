"""What every picture is made of: lines of text, grids, axes, tables, glyphs and colours."""
