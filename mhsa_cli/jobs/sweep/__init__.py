"""A sweep: its plan, its chunks, where they train, and what became of each trial."""
