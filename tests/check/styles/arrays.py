"""Styles `numpy` (a function that is given its weights) and `numpy_class` (a class with arrays and a mask argument)."""

from tests.check.styles.template import Style

_FUNCTION = """
import numpy as np


def softmax(z, axis=-1):
    e = np.exp(z - z.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def split_heads(x, num_heads):
    B, T, D = x.shape
    return x.reshape(B, T, num_heads, D // num_heads).transpose(0, 2, 1, 3)  #: split


def merge_heads(x):
    B, H, T, d_head = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, H * d_head)  #: merge


def multi_head_attention(X, W_Q, W_K, W_V, W_O, num_heads):
    B, T, D = X.shape
    d_head = D // num_heads
    Q = split_heads(X @ W_Q, num_heads)  #: q
    K = split_heads(X @ W_K, num_heads)  #: k
    V = split_heads(X @ W_V, num_heads)  #: v
    scores = Q @ K.transpose(0, 1, 3, 2)  #: scores
    scores = scores / np.sqrt(d_head)  #: scale
    future = np.triu(np.ones((T, T), dtype=bool), k=1)  #: future
    scores = np.where(future, -1e9, scores)  #: mask
    weights = softmax(scores, axis=-1)  #: softmax
    heads = weights @ V  #: mix
    Y = merge_heads(heads) @ W_O  #: out
    return Y, weights  #: return
"""

_SPLIT_BY_VIEW = {"split": "return x.reshape(B, num_heads, T, D // num_heads)"}
_MERGE_BY_VIEW = {"merge": "return x.reshape(B, T, H * d_head)"}

NUMPY = Style(
    "numpy",
    "multi_head_attention",
    _FUNCTION,
    {
        "scale_d_model": {"scale": "scores = scores / np.sqrt(D)"},
        "scale_none": {"scale": ""},
        "scale_d_head_unrooted": {"scale": "scores = scores / d_head"},
        "scale_multiplied": {"scale": "scores = scores * np.sqrt(d_head)"},
        "scale_twice": {"scores": "scores = (Q / np.sqrt(d_head)) @ K.transpose(0, 1, 3, 2)"},
        "scale_root_2": {"scale": "scores = scores / np.sqrt(0.5 * d_head)"},
        "scale_seq_len": {"scale": "scores = scores / np.sqrt(K.shape[-2])"},
        "scale_n_heads": {"scale": "scores = scores / np.sqrt(Q.shape[1])"},
        "scale_constant": {"scale": "scores = scores / 10.0"},
        "scale_after_softmax": {"softmax": "weights = softmax(scores, axis=-1) / np.sqrt(d_head)", "scale": ""},
        "softmax_over_queries": {"softmax": "weights = softmax(scores, axis=-2)"},
        "softmax_over_heads": {"softmax": "weights = softmax(scores, axis=1)"},
        "softmax_over_batch": {"softmax": "weights = softmax(scores, axis=0)"},
        "softmax_missing": {"softmax": "weights = scores", "mask": "scores = np.where(future, 0.0, scores)"},
        "softmax_is_sigmoid": {"softmax": "weights = 1 / (1 + np.exp(-scores))"},
        "softmax_twice": {"softmax": "weights = softmax(softmax(scores))"},
        "mask_no_effect": {"mask": "np.where(future, -1e9, scores)"},
        "mask_inverted": {"mask": "scores = np.where(future, scores, -1e9)"},
        "mask_transposed": {"future": "future = np.tril(np.ones((T, T), dtype=bool), k=-1)"},
        "mask_sees_next": {"future": "future = np.triu(np.ones((T, T), dtype=bool), k=2)"},
        "mask_hides_self": {"future": "future = np.triu(np.ones((T, T), dtype=bool))"},
        "mask_after_softmax": {"softmax": "weights = np.where(future, 0.0, softmax(scores, axis=-1))", "mask": ""},
        "mask_fill_zero": {"mask": "scores = np.where(future, -1e-9, scores)"},
        "split_by_view": _SPLIT_BY_VIEW,
        "merge_by_view": _MERGE_BY_VIEW,
        "split_and_merge_by_view": {**_SPLIT_BY_VIEW, **_MERGE_BY_VIEW},
        "key_reshaped": {"scores": "scores = Q @ K.reshape(B, num_heads, d_head, T)"},
        "merge_interleaved": {"merge": "return x.transpose(0, 2, 3, 1).reshape(B, T, H * d_head)"},
        "split_interleaved_k": {"k": "K = (X @ W_K).reshape(B, T, d_head, num_heads).transpose(0, 3, 1, 2)"},
        "output_transposed": {"return": "return np.swapaxes(Y, 1, 2), weights"},
        "batch_folded_wrong": {
            "mix": "heads = (weights @ V).reshape(num_heads, B, T, d_head).transpose(1, 0, 2, 3)",
        },
        "query_from_key": {"q": "Q = split_heads(X @ W_K, num_heads)"},
        "key_from_query": {"k": "K = split_heads(X @ W_Q, num_heads)"},
        "value_from_key": {"v": "V = split_heads(X @ W_K, num_heads)"},
        "value_from_query": {"v": "V = split_heads(X @ W_Q, num_heads)"},
        "value_unprojected": {"v": "V = split_heads(X, num_heads)"},
        "names_q_k_swapped": {"scores": "scores = K @ Q.transpose(0, 1, 3, 2)"},
        "names_k_v_swapped": {
            "k": "K = split_heads(X @ W_V, num_heads)",
            "v": "V = split_heads(X @ W_K, num_heads)",
        },
        "names_q_v_swapped": {
            "q": "Q = split_heads(X @ W_V, num_heads)",
            "v": "V = split_heads(X @ W_Q, num_heads)",
        },
        "out_missing": {"out": "Y = merge_heads(heads)"},
        "out_twice": {"out": "Y = merge_heads(heads) @ W_O @ W_O"},
        "attention_transposed": {"mix": "heads = weights.swapaxes(-2, -1) @ V"},
        "projections_created_in_forward": {"out": "Y = merge_heads(heads) @ np.random.randn(D, D)"},
        "weights_not_used": {"return": "return Y, softmax(Q @ K.transpose(0, 1, 3, 2))"},
        "input_changed_in_place": {"out": "X += merge_heads(heads) @ W_O\nY = X"},
    },
    make="multi_head_attention",
    call="block(x, W[0], W[1], W[2], W[3], H)",
    numpy=True,
)

_CLASS = """
import numpy as np


def scaled_dot_product_attention(Q, K, V, mask=None):
    d_k = Q.shape[-1]
    logits = Q @ np.swapaxes(K, -1, -2) / np.sqrt(d_k)  #: scores
    if mask is not None:  #: if
        logits = np.where(mask, logits, -1e9)  #: mask
    logits = logits - np.max(logits, axis=-1, keepdims=True)  #: stable
    weights = np.exp(logits)  #: exp
    weights /= np.sum(weights, axis=-1, keepdims=True)  #: normalise
    return weights @ V, weights  #: mix


class MultiHeadAttention:
    def __init__(self, d_model, n_heads, seed=0):
        assert d_model % n_heads == 0  #: assert
        self.d_model, self.n_heads, self.d_head = d_model, n_heads, d_model // n_heads
        rng = np.random.default_rng(seed)
        width = d_model  #: width
        self.W_q = rng.standard_normal((d_model, width)) / np.sqrt(d_model)
        self.W_k = rng.standard_normal((d_model, width)) / np.sqrt(d_model)
        self.W_v = rng.standard_normal((d_model, width)) / np.sqrt(d_model)
        self.W_o = rng.standard_normal((d_model, d_model)) / np.sqrt(d_model)  #: w_o
        #: more

    def _split(self, t):
        B, L, _ = t.shape
        return t.reshape(B, L, self.n_heads, self.d_head).transpose(0, 2, 1, 3)  #: split

    def _merge(self, t):
        B, H, L, d = t.shape
        return t.transpose(0, 2, 1, 3).reshape(B, L, H * d)  #: merge

    def forward(self, x, mask=None):
        #: first
        q = self._split(x @ self.W_q)  #: q
        k = self._split(x @ self.W_k)  #: k
        v = self._split(x @ self.W_v)  #: v
        context, weights = scaled_dot_product_attention(q, k, v, mask)  #: attend
        return self._merge(context) @ self.W_o, weights  #: return
"""

NUMPY_CLASS = Style(
    "numpy_class",
    "MultiHeadAttention",
    _CLASS,
    {
        "scale_d_model": {"scores": "logits = Q @ np.swapaxes(K, -1, -2) / np.sqrt(Q.shape[1] * d_k)"},
        "scale_none": {"scores": "logits = Q @ np.swapaxes(K, -1, -2)"},
        "scale_seq_len": {"scores": "logits = Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[2])"},
        "softmax_over_queries": {
            "normalise": "weights /= np.sum(weights, axis=-2, keepdims=True)",
            "stable": "logits = logits - np.max(logits, axis=-2, keepdims=True)",
        },
        "mask_no_effect": {"mask": "logits = np.where(mask, logits, logits - 1e-9)"},
        "mask_transposed": {"mask": "logits = np.where(np.swapaxes(mask, -1, -2), logits, -1e9)"},
        "mask_argument_raises": {"if": "if mask:"},
        "split_by_view": {"split": "return t.reshape(B, self.n_heads, L, self.d_head)"},
        "merge_by_view": {"merge": "return t.reshape(B, L, H * d)"},
        "value_unprojected": {"v": "v = self._split(x)"},
        "names_q_k_swapped": {"attend": "context, weights = scaled_dot_product_attention(k, q, v, mask)"},
        "names_k_v_swapped": {"attend": "context, weights = scaled_dot_product_attention(q, v, k, mask)"},
        "one_matrix_for_all_heads": {
            "width": "width = self.d_head",
            "split": "return np.repeat(t[:, None], self.n_heads, axis=1)",
        },
        "out_missing": {"return": "return self._merge(context), weights"},
        "dropout_in_eval": {
            "attend": "context, weights = scaled_dot_product_attention(q, k, v, mask)\n"
            "context = context * (np.random.rand(*context.shape) > 0.1) / 0.9  #!",
        },
        "projections_created_in_forward": {
            "first": "self.W_o = np.random.standard_normal((self.d_model, self.d_model)) / np.sqrt(self.d_model)"
        },
        "heads_not_dividing": {
            "width": "width = n_heads * self.d_head",
            "assert": "",
            "w_o": "self.W_o = rng.standard_normal((width, width)) / np.sqrt(d_model)",
        },
        "state_between_calls": {
            "first": "self.total = self.total + x.mean()\nx = x - self.total",
            "more": "self.total = 0.0",
        },
        "input_changed_in_place": {"first": "x /= np.linalg.norm(x, axis=-1, keepdims=True)"},
    },
    make="MultiHeadAttention(D, H)",
    call="block.forward(x, keep)",
    numpy=True,
)
