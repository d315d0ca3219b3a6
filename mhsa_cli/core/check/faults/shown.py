"""Faults that no output names, but a law shows."""

from __future__ import annotations

from mhsa_cli.core.check.faults.base import Fault

SHOWN: dict[str, Fault] = {
    "dropout_in_eval": Fault(
        "dropout still drops in eval: two calls on one input differ",
        "use nn.Dropout, or F.dropout(x, p, training=self.training), or dropout_p=p if self.training else 0.0",
        "dropout",
    ),
    "dropout_on_scores": Fault(
        "dropout drops scores, before the softmax: a masked score that is dropped becomes 0, or NaN, so that in "
        "training a token sees the future",
        "take the softmax first, and drop weights: weights = dropout(scores.softmax(-1))",
        "dropout_before",
    ),
    "projections_created_in_forward": Fault(
        "a projection is created anew in every call: it is random each time and never trained",
        "create the layers once, in __init__",
        "created",
    ),
    "weights_after_dropout": Fault(
        "the returned weights are those after dropout: in training their rows do not sum to one",
        "keep the weights before dropout for returning: dropped = dropout(weights); return dropped @ v, weights",
        "dropped_weights",
    ),
    "weights_not_used": Fault(
        "the returned weights are not those that made the output",
        "return the weights that multiply v, of shape (B, H, T, T)",
        "returned_weights",
    ),
    "mask_argument_raises": Fault(
        "the mask argument raises for every usual mask: (T, T), (1, T, T), (B, T, T), (B, 1, T, T); boolean "
        "or additive",
        "let a mask of (T, T) broadcast over (B, H, T, T)",
        "mask",
    ),
    "heads_not_dividing": Fault(
        "a d_model that n_heads does not divide is accepted and gives a narrower output",
        "refuse it in the constructor: if d_model % n_heads: raise ValueError(...)",
        "divides",
    ),
    "state_between_calls": Fault(
        "the answer depends on earlier calls: something is kept between them",
        "keep nothing on self in forward, or key it by what it depends on",
        "state",
    ),
    "parameter_unused": Fault(
        "a parameter has no influence on the output, so it gets no gradient and never trains",
        "use it in forward, or remove it",
        "unused",
    ),
    "gradient_cut": Fault(
        "no gradient reaches {seen}: it moves the output, but something on the way detaches it, so it never trains",
        "leave out .detach(), .data, .item(), .numpy(), torch.no_grad() and torch.tensor(...) on the way from the "
        "parameters to the output; rounding and comparing pass no gradient on either",
        "detached",
    ),
    "mask_with_a_hole": Fault(
        "the mask hides some later tokens but not all",
        "hide all of them: True above the diagonal of the whole (T, T), torch.ones(T, T, dtype=torch.bool).triu(1)",
        "mask_shape",
    ),
    "mask_not_a_buffer": Fault(
        "the mask is a plain tensor: it stays behind when the module moves to another device",
        "self.register_buffer('causal_mask', mask, persistent=False)",
        "mask_made",
    ),
    "input_changed_in_place": Fault(
        "the input is changed in place: the caller's tensor is another one afterwards",
        "write y = x * a, not x *= a",
        "in_place",
    ),
    "parameters_not_registered": Fault(
        "weights are plain tensors or layers in a plain list: parameters() does not know them, so they are neither "
        "trained nor saved nor moved",
        "wrap tensors in nn.Parameter, and lists of layers in nn.ModuleList",
        "unregistered",
    ),
}
