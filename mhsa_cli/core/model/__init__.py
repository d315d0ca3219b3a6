"""The language model: attention, positions, layers, and custom attention."""
