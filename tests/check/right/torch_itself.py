from torch.nn import MultiheadAttention

__all__ = ["MultiheadAttention"]
