from torch import nn

block = nn.MultiheadAttention(24, 4, batch_first=True)
