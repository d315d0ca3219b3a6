import flax.linen as nn
import jax.numpy as jnp


class SelfAttention(nn.Module):
    num_heads: int

    @nn.compact
    def __call__(self, x):
        b, t, d = x.shape
        qkv = nn.Dense(3 * d)(x).reshape(b, t, 3, self.num_heads, -1)
        q, k, v = jnp.moveaxis(qkv, 2, 0)
        w = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1]))
        return nn.Dense(d)(jnp.einsum("bhqk,bkhd->bqhd", w, v).reshape(b, t, d))
