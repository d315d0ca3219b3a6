"""Training steps with their gradients written out.

At toy sizes most of a training step is bookkeeping: hundreds of small calls of autograd, of views and of allocations
around some tens that compute. Here are those tens; every tensor and every view of it is made once. Tests hold all
gradients against autograd on the ordinary model.
"""
