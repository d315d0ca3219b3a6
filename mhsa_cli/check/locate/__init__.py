"""Find the line of a fault: a rule for each part of attention returns a node of the syntax tree.

`flow` lists the nodes that a call runs; `anatomy` finds scores, softmax, values and masks among them for the rules.
"""
