"""Which variant of the reference custom attention equals."""
