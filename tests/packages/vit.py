from transformers import ViTConfig
from transformers.models.vit.modeling_vit import ViTAttention

block = ViTAttention(ViTConfig(hidden_size=24, num_attention_heads=4))
