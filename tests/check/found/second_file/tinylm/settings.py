from dataclasses import dataclass


@dataclass
class Settings:
    dim: int = 64
    n_heads: int = 4
    vocab_size: int = 1000
