"""The mathematics: the only folder that imports torch. It never prints and never touches a run directory."""

import os

# MKL's bits otherwise depend on where a matrix lies in memory, and so on a model's slot in a stack.
os.environ.setdefault("MKL_CBWR", "AUTO")
