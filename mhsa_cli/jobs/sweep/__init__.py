"""Sweeps: plan, chunks, engines, and results of trials."""
