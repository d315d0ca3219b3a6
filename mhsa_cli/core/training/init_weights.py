"""Initial weights from a file: fitted to a model by name and shape, or refused with the settings that would fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from mhsa_cli.config.init_file import HOW_TO_SAVE
from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.positions import SinusoidalPositions
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.training.checkpoint import dtype_name
from mhsa_cli.core.training.init_names import Slot, as_ours, has_gpt2_names, is_buffer, is_input_first, slot_of
from mhsa_cli.errors import UsageError
from mhsa_cli.records.initial import MappedTensor
from mhsa_cli.text import escape, typed

SHOWN = 12  # problems that a message names
QKV = ("attn.q", "attn.k", "attn.v")
NORMS = ("attn_norm", "mlp_norm", "final_norm")
CODE = "init"


class Source(NamedTuple):
    """A tensor of the file in our layout, its name there, and what was done with it; its `heads` if it tells them."""

    name: str
    tensor: Tensor
    done: str
    heads: int | None = None


def read_tensors(data: bytes, file: str) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file. Raises: UsageError if it is none."""
    try:
        return dict(sorted(load(data).items()))
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"train.init: {escape(file)} is no safetensors file", f"save it by {HOW_TO_SAVE}", CODE
        ) from error


def load_initial(model: TransformerLM, config: Config, tensors: Mapping[str, Tensor], file: str) -> list[MappedTensor]:
    """Copy the tensors of a file into a model, and tell what became of each.

    Raises: UsageError with every tensor that is missing, unexpected or of another shape, and the settings that fit.
    """
    weights = dict(model.named_parameters())
    if model.custom is not None or tensors.keys() == weights.keys():
        fit = _Fit(model, {}, dict(tensors))
        fit.by_name(weights)
    else:
        fit = _Fit(model, *_placed(tensors, file))
        for name in weights:
            fit.place(name)
        fit.excuse()
    if fit.problems:
        more = [f"and {len(fit.problems) - SHOWN} more"] if len(fit.problems) > SHOWN else []
        lines = "\n  ".join([*fit.problems[:SHOWN], *more])
        settings = " ".join(f"{key}={typed(value)}" for key, value in fitting(config, tensors).items())
        hint = (
            f"settings of this file: {settings}"
            if settings
            else "wanted are all weights of the model, by name and shape"
        )
        raise UsageError(f"train.init: {escape(file)} does not fit the model\n  {lines}", hint, CODE)
    with torch.no_grad():
        for name, tensor in fit.found.items():
            weights[name].copy_(tensor)
    return fit.mapped


def _placed(tensors: Mapping[str, Tensor], file: str) -> tuple[dict[Slot, Source], dict[str, Tensor]]:
    """Find the slots of a file's tensors; also return those that have none."""
    slots, others = dict[Slot, Source](), dict[str, Tensor]()
    input_first: bool | None = False
    if has_gpt2_names(tensors):
        input_first = is_input_first(tensors, _stream_width(tensors))
        if input_first is None:
            message = f"train.init: {escape(file)}: no shape tells (d_out, d_in) from (d_in, d_out)"
            raise UsageError(
                message, "save the weights under other names, such as attn.qkv_proj.weight (d_out, d_in)", CODE
            )
    for name, tensor in tensors.items():
        slot = None if is_buffer(name, tensor) else slot_of(name)
        if slot is None or slot in slots:
            others[name] = tensor
        else:
            heads = tensor.size(0) if tensor.dim() == 3 else None
            slots[slot] = Source(name, *as_ours(name, slot, tensor, bool(input_first)), heads)
    return slots, others


def _stream_width(tensors: Mapping[str, Tensor]) -> int:
    tables = (t for name, t in tensors.items() if (slot := slot_of(name)) is not None and slot.part == "tok_emb")
    return next((table.size(-1) for table in tables), 0)


class _Fit:
    """The weights found so far, what became of each tensor, and the problems."""

    def __init__(self, model: TransformerLM, slots: dict[Slot, Source], others: dict[str, Tensor]) -> None:
        self.model, self.slots, self.others = model, slots, others
        self.weights = dict(model.named_parameters())
        self.found: dict[str, Tensor] = {}
        self.mapped: list[MappedTensor] = []
        self.problems: list[str] = []
        self.folded = is_hooked(slots) and not {slot.part for slot in slots} & set(NORMS)

    def by_name(self, weights: Mapping[str, Tensor]) -> None:
        """Take every tensor under its own name."""
        for name in weights:
            if name in self.others:
                self._take(name, [Source(name, self.others.pop(name), "")])
            else:
                self._missing(name)
        self.problems += [f"unexpected: {escape(name)} {_shape(tensor)}" for name, tensor in self.others.items()]

    def place(self, name: str) -> None:
        """Find a weight of ours in the file."""
        slot = slot_of(name)
        assert slot is not None, name
        if slot in self.slots:
            self._take(name, [self.slots.pop(slot)])
            return
        parts = [slot._replace(part=part) for part in QKV] if slot.part == "attn.qkv_proj" else []
        if parts and all(part in self.slots for part in parts):
            self._take(name, [self.slots.pop(part) for part in parts])
            return
        if slot.part == "lm_head" and slot.leaf == "bias":
            self._fill(name, 0.0, "zeros: the file has no bias here")
        elif slot.part in NORMS and self.folded:
            self._fill(name, float(slot.leaf == "weight"), "ones and zeros: folded into the maps after it")
        else:
            self._missing(name)

    def excuse(self) -> None:
        """Leave out tensors that change nothing in this model; the others are problems."""
        for name, tensor in self.others.items():
            if is_buffer(name, tensor):
                self.mapped.append(MappedTensor([name], "", tensor.shape, "not a weight"))
            else:
                self.problems.append(f"unexpected: {escape(name)} {_shape(tensor)}")
        for slot, source in self.slots.items():
            if why := self._changes_nothing(slot, source.tensor):
                self.mapped.append(MappedTensor([source.name], "", source.tensor.shape, why))
            else:
                self.problems.append(f"unexpected: {escape(source.name)} {_shape(source.tensor)}")

    def _changes_nothing(self, slot: Slot, tensor: Tensor) -> str:
        positions = self.model.positions
        if slot.leaf == "bias" and not tensor.any():
            return "zeros"
        if slot.part == "positions.pos_emb":
            if isinstance(positions, SinusoidalPositions):
                table = positions.table.to(tensor.dtype)
                same = table.shape == tensor.shape and torch.allclose(table, tensor, atol=1e-6)
                return "the table of sinusoidal positions" if same else ""
            return "" if tensor.any() else "zeros"
        embedding = self.found.get("tok_emb.weight")
        if slot == Slot(None, "lm_head", "weight") and embedding is not None and torch.equal(embedding, tensor):
            return "equal to tok_emb, which the model ties it to"
        return ""

    def _take(self, name: str, sources: Sequence[Source]) -> None:
        target = self.weights[name]
        wanted = self._wanted(target, len(sources))
        fits = True
        for source, (shape, heads) in zip(sources, wanted, strict=True):
            if source.heads not in (None, heads):
                self.problems.append(f"{escape(source.name)} for {name}: found {source.heads} heads, wanted {heads}")
                fits = False
            elif tuple(source.tensor.shape) != shape:
                turned = " (its transpose fits)" if tuple(source.tensor.shape[::-1]) == shape else ""
                found = f"{escape(source.name)} for {name}: found {_shape(source.tensor)}, wanted {shape}{turned}"
                self.problems.append(found)
                fits = False
            elif not source.tensor.isfinite().all():
                self.problems.append(f"{escape(source.name)}: found NaN or infinite numbers")
                fits = False
        if not fits:
            return
        tensor = sources[0].tensor if len(sources) == 1 else torch.cat([source.tensor for source in sources])
        done = list(dict.fromkeys(source.done for source in sources if source.done))
        done += ["q, k, v fused"] if len(sources) > 1 else []
        if tensor.dtype != target.dtype:
            done.append(f"{dtype_name(tensor)} to {dtype_name(target)}")
        self.found[name] = tensor
        self.mapped.append(MappedTensor([s.name for s in sources], name, tensor.shape, ", ".join(done)))

    def _wanted(self, target: Tensor, sources: int) -> list[tuple[tuple[int, ...], int]]:
        """List the shapes of the sources of a weight, and their heads."""
        if self.model.custom is not None or sources == 1:
            return [(tuple(target.shape), self.model.mixers[0].n_heads)]
        attn = self.model.attention[0]
        heads = (attn.n_heads, attn.n_kv_heads, attn.n_kv_heads)
        return [((width, *target.shape[1:]), n) for width, n in zip(attn.widths, heads, strict=True)]

    def _fill(self, name: str, value: float, why: str) -> None:
        self.found[name] = torch.full_like(self.weights[name], value)
        self.mapped.append(MappedTensor([], name, self.weights[name].shape, why))

    def _missing(self, name: str) -> None:
        self.problems.append(f"missing: {name} {tuple(self.weights[name].shape)}")


def is_hooked(slots: Mapping[Slot, Source]) -> bool:
    """Whether the names are TransformerLens's, which may have folded its norms into the maps after them."""
    return any(source.name.endswith("embed.W_E") for source in slots.values())


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def fitting(config: Config, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Infer from a file's names and shapes the settings that would fit it: those that differ from the config's."""
    try:
        slots, _ = _placed(tensors, "")
    except UsageError:
        return {}
    model, found = config.model, dict[str, Any]()
    sources = {(slot.part, slot.leaf): source for slot, source in reversed(slots.items())}
    table = sources.get(("tok_emb", "weight"))
    if table is None or table.tensor.dim() != 2:
        return {}
    if hasattr(config.task, "vocab_size"):
        found["task.vocab_size"] = table.tensor.size(0)
    D = found["model.d_model"] = table.tensor.size(1)
    found["model.n_layers"] = 1 + max((slot.layer for slot in slots if slot.layer is not None), default=0)
    up = sources.get(("mlp.up", "weight"))
    found["model.d_mlp"] = 0 if up is None else up.tensor.size(0)
    if up is not None:
        gated = ("mlp.gate", "weight") in sources
        found["model.mlp"] = "swiglu" if gated else "gelu" if model.mlp == "swiglu" else model.mlp
    found |= _heads(config, tensors, sources, D)
    biases = [s.tensor for (part, leaf), s in sources.items() if leaf == "bias" and part.startswith(("attn.", "mlp."))]
    found["model.bias"] = any(bool(bias.any()) for bias in biases) or (model.bias and bool(biases))
    norms = {slot.leaf for slot in slots if slot.part in NORMS}
    if norms or not is_hooked(slots):  # there they may be folded into the maps
        without = "layernorm" if model.norm == "layernorm" and not found["model.bias"] else "rmsnorm"
        found["model.norm"] = "layernorm" if "bias" in norms else without if norms else "none"
    head = sources.get(("lm_head", "weight"))
    found["model.tie_embeddings"] = head is None or (model.tie_embeddings and torch.equal(head.tensor, table.tensor))
    positions = sources.get(("positions.pos_emb", "weight"))
    if positions is not None and positions.tensor.any():
        fixed = model.positions == "sinusoidal" and positions.tensor.shape == (config.max_seq_len, D)
        fixed = fixed and torch.allclose(
            SinusoidalPositions(config.max_seq_len, D).table, positions.tensor.float(), atol=1e-6
        )
        found["model.positions"] = "sinusoidal" if fixed else "learned"
        found["model.max_seq_len"] = positions.tensor.size(0)
    now = {f"model.{name}": getattr(model, name) for name in type(model).model_fields}
    now |= {"task.vocab_size": getattr(config.task, "vocab_size", None), "model.max_seq_len": config.max_seq_len}
    return {key: value for key, value in found.items() if now[key] != value}


def _heads(
    config: Config, tensors: Mapping[str, Tensor], sources: Mapping[tuple[str, str], Source], D: int
) -> dict[str, Any]:
    """Infer the number and width of heads; from joined projections, with the config's number of heads."""
    model = config.model
    fused, parts = sources.get(("attn.qkv_proj", "weight")), [sources.get((part, "weight")) for part in QKV]
    H, G = model.n_heads, model.n_kv_heads or model.n_heads
    if all(parts):
        query, key = (tensors[part.name] for part in parts[:2] if part is not None)
        if query.dim() == 3:
            H, G, d = query.size(0), key.size(0), query.size(2)
        elif query.size(0) % H:
            return {}
        else:
            d = query.size(0) // H
            G = key.size(0) // d if d and key.size(0) % d == 0 else G
    elif fused is not None and fused.tensor.size(0) == 3 * D and D % H == 0:
        G, d = H, D // H
    elif fused is not None and fused.tensor.size(0) % (H + 2 * G) == 0:
        d = fused.tensor.size(0) // (H + 2 * G)
    else:
        return {}
    found: dict[str, Any] = {
        "model.n_heads": H,
        "model.n_kv_heads": model.n_kv_heads if (model.n_kv_heads or H) == G else G,
    }
    found["model.d_head"] = None if H * d == D and (model.d_head is None or model.d_head != d) else d
    return found
