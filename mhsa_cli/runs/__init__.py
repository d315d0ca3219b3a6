"""Run folders: what is written while training, and how it is read back. Standard library only."""
