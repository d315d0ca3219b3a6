"""Frozen data that passes between the rooms; no torch, no rich."""
