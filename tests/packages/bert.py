from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertAttention

block = BertAttention(BertConfig(hidden_size=24, num_attention_heads=4))
