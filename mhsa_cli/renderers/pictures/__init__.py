"""One file for each picture: a record and a surface in, lines out."""
