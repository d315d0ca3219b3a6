from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention

block = LlamaAttention(LlamaConfig(hidden_size=24, num_attention_heads=4, num_key_value_heads=2), layer_idx=0)
