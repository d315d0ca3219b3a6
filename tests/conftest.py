"""One thread for every test: the bits of a matrix product may depend on how many share it."""

import torch

torch.set_num_threads(1)
