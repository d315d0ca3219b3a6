from transformers.models.bloom import modeling_bloom as bloom


class Block(bloom.BloomAttention):
    def forward(self, x, mask): return super().forward(x, 0 * x, bloom.build_alibi_tensor(x[..., 0] * 0 + 1, 4, x.dtype), mask)[0]  # fmt: skip  # noqa: E501, E704


block = Block(bloom.BloomConfig(hidden_size=24, n_head=4), layer_idx=0)
