"""The table of faults: each wrong variant of the reference by name, why it is wrong, and what to write instead.

A new fault is an entry here and, if the output tells it, a form in `reference.py`. The explanations follow Vaswani et
al. 2017. The order is that of the search: what meets most often comes first.
"""

from mhsa_cli.check.faults.base import Fault, Form
from mhsa_cli.check.faults.rope import ROPE
from mhsa_cli.check.faults.scores import SCORES
from mhsa_cli.check.faults.shapes import SHAPES
from mhsa_cli.check.faults.shown import SHOWN

FAULTS: dict[str, Fault] = {**SCORES, **SHAPES, **ROPE, **SHOWN}

__all__ = ["FAULTS", "Fault", "Form"]
