"""How custom attention is built and called."""
