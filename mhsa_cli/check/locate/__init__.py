"""Which node of a block's syntax tree is which part of attention: a rule for each part.

`flow` walks what a call runs; `anatomy` finds scores, softmax, values and masks in it; the rules point from there.
"""

from mhsa_cli.check.locate import heads, modules, rope, scores
from mhsa_cli.check.locate.rules import Rule

# A part of attention, as a fault names it -> the rule that points at its node.
PLACES: dict[str, Rule] = {
    "scale": scores.scale,
    "scale_used": scores.scale_used,
    "scale_after": scores.scale_after,
    "scale_again": scores.scale_again,
    "scores": scores.scores,
    "softmax": scores.softmax,
    "softmax_kind": scores.softmax_kind,
    "softmax_again": scores.softmax_again,
    "softmax_place": scores.softmax_place,
    "mask": scores.mask,
    "mask_order": scores.mask_order,
    "mask_lost": scores.mask_lost,
    "fill": scores.fill,
    "mask_shape": scores.mask_shape,
    "mask_made": scores.mask_made,
    "values": scores.values,
    "split": heads.split,
    "merge": heads.merge,
    "query": heads.query,
    "key": heads.key,
    "value": heads.value,
    "key_shape": heads.key_shape,
    "names": heads.names_of_roles,
    "shared": heads.first_projection,
    "out": heads.out,
    "rope": rope.rotation,
    "rope_values": rope.rotation_of_values,
    "rope_keys": rope.rotation_of_keys,
    "angles": rope.angles,
    "positions": rope.positions,
    "rates": rope.rates,
    "sense": rope.sense,
    "dropout": modules.dropout,
    "dropout_before": modules.dropout_before,
    "dropped_weights": modules.dropped_weights,
    "returned_weights": modules.returned_weights,
    "detached": modules.detached,
    "created": modules.created,
    "divides": modules.divides,
    "unused": lambda a: None,  # the law says which parameter: `modules.unused`
    "unregistered": modules.unregistered,
    "state": modules.state,
    "in_place": modules.in_place,
}
