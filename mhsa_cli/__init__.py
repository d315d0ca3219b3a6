"""Train tiny attention models in seconds, in a terminal, and see what each head really does."""

__version__ = "0.1.0"
