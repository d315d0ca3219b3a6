from x_transformers.x_transformers import Attention

block = Attention(dim=24, heads=4, dim_head=6, causal=True)
