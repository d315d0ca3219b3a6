"""Faults that no output names, but a law shows."""

from __future__ import annotations

from mhsa_cli.check.faults.base import Fault

SHOWN: dict[str, Fault] = {
    "dropout_in_eval": Fault(
        "dropout in eval mode",
        "dropout still drops in eval: two calls on one input differ",
        "use nn.Dropout, or F.dropout(x, p, training=self.training), or dropout_p=p if self.training else 0.0",
        "dropout",
        adds={"changes_in_eval": "{place}"},
    ),
    "dropout_on_scores": Fault(
        "dropout before the softmax",
        "dropout drops scores, before the softmax: a masked score that is dropped becomes 0, or NaN, so that in "
        "training a token sees the future",
        "take the softmax first, and drop weights: weights = dropout(scores.softmax(-1))",
        "dropout_before",
    ),
    "projections_created_in_forward": Fault(
        "projections created in each call",
        "a projection is created anew in every call: it is random each time and never trained",
        "create the layers once, in __init__",
        "created",
    ),
    "weights_after_dropout": Fault(
        "weights returned after dropout",
        "the returned weights are those after dropout: in training their rows do not sum to one",
        "keep the weights before dropout for returning: dropped = dropout(weights); return dropped @ v, weights",
        "dropped_weights",
    ),
    "weights_not_used": Fault(
        "weights returned are not those used",
        "the returned weights are not those that made the output",
        "return the weights that multiply v, of shape (B, H, T, T)",
        "returned_weights",
        adds={"differs": "{place}"},
    ),
    "mask_argument_raises": Fault(
        "mask argument cannot be given",
        "the mask argument raises for every usual mask: (T, T), (1, T, T), (B, T, T), (B, 1, T, T); boolean "
        "or additive",
        "let a mask of (T, T) broadcast over (B, H, T, T)",
        "mask",
    ),
    "heads_not_dividing": Fault(
        "heads do not divide the width",
        "a d_model that n_heads does not divide is accepted and gives a narrower output",
        "refuse it in the constructor: if d_model % n_heads: raise ValueError(...)",
        "divides",
        adds={"narrower": "d_model={D} with {H} heads is accepted, and {columns} columns come out"},
    ),
    "state_between_calls": Fault(
        "state between calls",
        "the answer depends on earlier calls: something is kept between them",
        "keep nothing on self in forward, or key it by what it depends on",
        "state",
        adds={"stale": "a second input is answered otherwise than by one that saw no first"},
    ),
    "parameter_unused": Fault(
        "parameter unused",
        "a parameter has no influence on the output, so it gets no gradient and never trains ({names})",
        "use it in forward, or remove it",
        "unused",
    ),
    "gradient_cut": Fault(
        "gradient cut off",
        "no gradient reaches {names}: it moves the output, but something on the way detaches it, so it never trains",
        "leave out .detach(), .data, .item(), .numpy(), torch.no_grad() and torch.tensor(...) on the way from the "
        "parameters to the output; rounding and comparing pass no gradient on either",
        "detached",
    ),
    "mask_with_a_hole": Fault(
        "mask with a hole",
        "the mask hides some later tokens but not all (token {token} does not see token {near}, but sees token {far})",
        "hide all of them: True above the diagonal of the whole (T, T), torch.ones(T, T, dtype=torch.bool).triu(1)",
        "mask_shape",
    ),
    "mask_not_a_buffer": Fault(
        "mask is not a buffer",
        "the mask is a plain tensor: it stays behind when the module moves to another device ({names})",
        "self.register_buffer('causal_mask', mask, persistent=False)",
        "mask_made",
    ),
    "input_changed_in_place": Fault(
        "input changed in place",
        "the input is changed in place: the caller's tensor is another one afterwards",
        "write y = x * a, not x *= a",
        "in_place",
    ),
    "parameters_not_registered": Fault(
        "parameters not registered",
        "weights are plain tensors or layers in a plain list: parameters() does not know them, so they are neither "
        "trained nor saved nor moved ({names})",
        "wrap tensors in nn.Parameter, and lists of layers in nn.ModuleList",
        "unregistered",
    ),
}
