from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

block = GPT2Attention(GPT2Config(n_embd=24, n_head=4, n_positions=16), layer_idx=0)
