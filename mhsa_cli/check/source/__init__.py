"""Load the block that FILE:NAME names."""
