"""The model: attention, positions, layers, and what may stand in their place."""
