from transformers import GPTJConfig
from transformers.models.gptj.modeling_gptj import GPTJAttention

block = GPTJAttention(GPTJConfig(n_embd=24, n_head=4, n_positions=16, rotary_dim=6), layer_idx=0)
