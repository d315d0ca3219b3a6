"""One file a picture: a record and a surface in, lines out."""
