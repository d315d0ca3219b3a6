"""The tensor story of one forward pass."""
