"""Training steps with analytic gradients.

At small sizes most of a training step is overhead of autograd, views and allocations. Here every tensor and view is
created once and each step makes a few dozen calls. Tests compare all gradients with autograd.
"""
