from transformers import MistralConfig
from transformers.models.mistral.modeling_mistral import MistralAttention

block = MistralAttention(MistralConfig(hidden_size=24, num_attention_heads=4, num_key_value_heads=2), layer_idx=0)
