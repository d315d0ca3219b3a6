"""Parts of pictures: lines of text, grids, axes, tables, glyphs and colours."""
