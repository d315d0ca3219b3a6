"""Which of its weights is what, and the right attention with those weights."""
