"""Which node of a block's syntax tree is which part of attention: a rule for each part.

`flow` walks what a call runs; `anatomy` finds scores, softmax, values and masks in it; the rules point from there.
"""
