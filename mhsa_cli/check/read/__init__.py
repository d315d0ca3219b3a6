"""The roles of a block's weights, and the reference attention with those weights."""
