"""Path patching and activation patching: clean rows, with one thing in the model taken from corrupted rows.

The rows are those of `Task.corrupt`; the effect is the change of the loss where they are scored. Sources: Wang et al.
2022 and Goldowsky-Dill et al. 2023 (path patching); Meng et al. 2022 (activation patching).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.config.encoder_decoder import refuse_encoder_decoder
from mhsa_cli.core.heads.causal import Ablator, ratio
from mhsa_cli.core.heads.probe import rows_that_fit
from mhsa_cli.core.heads.stream import output_maps, run_stream, writers, written
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, attention_weights, uniform_weights
from mhsa_cli.core.model.linear_attention import linear_weights
from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.core.tasks import IGNORE, Task, fixed_batch
from mhsa_cli.core.tasks.base import Batch, stream_generator
from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import PARTS, ActivationEffect, Mlp, Part, Path, PathEffect, Writer
from mhsa_cli.text import Head

PAIRS, MIN_PAIRS = 64, 4  # clean and corrupted rows; fewer where rows are long
RANDOM = 64  # random writers of the null
MAX_CHANGES = 2**26  # numbers that they write in all pairs together, about a second of work
CHUNK = 2**20  # numbers held at once by variants that run together
# Codes of the refusals.
UNKNOWN, NOT_ABOVE, NO_PATH, NO_SCORES = "no-such-writer", "reader-not-above", "no-direct-path", "no-queries-and-keys"
NO_PAIRS, TOO_LONG = "no-corrupted-rows", "rows-too-long"


class Pairs(NamedTuple):
    """Clean and corrupted inputs (n, T), and the targets of the clean ones (n, T); every row has a scored place."""

    clean: Tensor
    corrupted: Tensor
    targets: Tensor

    @property
    def batch(self) -> Batch:
        """The clean rows."""
        return Batch(self.clean, self.targets)


def draw_pairs(model: TransformerLM, task: Task, seed: int) -> Pairs:
    """Draw PAIRS held-out rows with a corrupted row each, fewer where rows are long.

    Raises: UsageError with code TOO_LONG or NO_PAIRS.
    """
    width = task.seq_len * model.lm_head.weight.size(1)
    n = min(rows_that_fit(model, task.seq_len, PAIRS), MAX_CHANGES // (RANDOM * width))
    if n < MIN_PAIRS:
        raise UsageError(f"rows of {task.seq_len} tokens are too long to patch heads on", code=TOO_LONG)
    batch = fixed_batch(task, seed, "patch", 2 * n)  # some have no partner
    corrupted = task.corrupt(batch, stream_generator(seed, "corrupt", 0))
    rows = (corrupted.targets != IGNORE).any(1).nonzero().squeeze(1)[:n]
    if len(rows) < MIN_PAIRS:
        message = f"{task.name} has no corrupted rows to patch from: too few of its rows are scored at the same places"
        raise UsageError(message, "use a task with more different rows", code=NO_PAIRS)
    return Pairs(batch.inputs[rows], corrupted.inputs[rows], corrupted.targets[rows])


def path_error(model: TransformerLM, path: Path) -> UsageError | None:
    """Return why a path cannot be patched in this model, None if it can: its code is UNKNOWN, NOT_ABOVE, ..."""
    known = {writer for layer in range(len(model.blocks) + 1) for writer in (*writers(model, layer), *model.heads)}
    for named in (*path.writers, *path.readers):
        if named not in known:
            return UsageError(f"{path}: this model has no {named}", _listing(model), UNKNOWN)
    errors = (_reader_error(model, path, reader) for reader in path.readers or [None])
    return next((error for error in errors if error is not None), None)


def _reader_error(model: TransformerLM, path: Path, reader: Head | None) -> UsageError | None:
    """Return why one reader of a path, None for the logits, cannot read its writers."""
    n_layers = len(model.blocks)
    layer = n_layers if reader is None else reader.layer
    for writer in path.writers:
        if isinstance(writer, tuple) and writer.layer >= layer:
            return UsageError(f"{path}: {reader} is not above {writer}", "a head reads the layers below", NOT_ABOVE)
        if writer not in writers(model, layer):
            target = "the last layer's output" if reader is None else f"the input of {reader}"
            message = f"{path}: {writer} is not part of {target}: the model has no residuals"
            return UsageError(message, "train with model.residual=true", NO_PATH)
    if reader is None:
        return None
    if not model.blocks[0].residual and layer + 1 < n_layers:
        message = f"{path}: without residuals only heads read {reader}, and they keep their outputs"
        return UsageError(message, "train with model.residual=true", NO_PATH)
    kind = model.attention[layer].kind
    if kind == "uniform" and path.part != "v":
        message = f"{path}: {kind} attention has no queries or keys"
        return UsageError(message, f"its values: {Path(path.writer, reader, 'v')}", NO_SCORES)
    return None


def _listing(model: TransformerLM) -> str:
    """List what can be named in a path."""
    mlps = "" if model.blocks[0].mlp is None else f", L0.MLP to L{len(model.blocks) - 1}.MLP"
    return f"heads: {model.heads[0]} to {model.heads[-1]}; other writers: embedding{mlps}"


class ScoredPlaces:
    """The scored places of targets (B, T), up to Q of them in a row; where a row has fewer, the rest is not counted."""

    def __init__(self, targets: Tensor) -> None:
        scored = targets != IGNORE
        self.counts = scored.sum(1)  # (B,)
        self.index = (~scored).sort(stable=True, dim=1).indices[:, : int(self.counts.max())]  # (B, Q): the scored first
        self.counted = torch.arange(self.index.size(1), device=targets.device) < self.counts.unsqueeze(1)
        self.answers = targets.gather(1, self.index).clamp(min=0)

    def pick(self, x: Tensor) -> Tensor:
        """Select what belongs to these places: (..., B, T, n) to (..., B, Q, n)."""
        return x.gather(-2, self.index.unsqueeze(-1).expand(*x.shape[:-2], -1, x.size(-1)))

    def losses(self, logits: Tensor) -> Tensor:
        """Sum the cross-entropy over each row's places: (S, B, Q, V) to (S, B), float64 on the CPU."""
        log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        nats = -log_p.gather(-1, self.answers.expand(*logits.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        return (nats.double() * self.counted).sum(-1).cpu()


class Change(NamedTuple):
    """Changes of the stream in S directions: `coordinates` (B, T, r) and the `directions` of each (S, r, D)."""

    coordinates: Tensor
    directions: Tensor

    def split(self, numbers: int) -> Iterator[Change]:
        """Split the directions, so that each part makes at most so many numbers of the stream at once."""
        each = self.coordinates[..., 0].numel() * self.directions.size(-1)
        for part in self.directions.split(max(1, numbers // each)):
            yield self._replace(directions=part)

    def added_to(self, x: Tensor) -> Tensor:
        """Add each change to x (B, T, D): (S, B, T, D)."""
        flat, coordinates = (t.flatten(0, 1).expand(len(self.directions), -1, -1) for t in (x, self.coordinates))
        return torch.baddbmm(flat, coordinates, self.directions).unflatten(1, x.shape[:2])


class Patcher:
    """Patches paths of a model on pairs of clean and corrupted rows.

    All heads keep their clean outputs but the reader. The MLPs after the reader are computed anew; those before it
    keep their outputs, being writers themselves.
    """

    @torch.no_grad()
    def __init__(self, model: TransformerLM, pairs: Pairs, seed: int = 0) -> None:
        self.model, self.pairs, self.seed = model, pairs, seed
        self.pos = model.pos[: pairs.targets.size(1)]
        self.scored = ScoredPlaces(pairs.targets.to(model.pos.device))
        self.clean, self.corrupted = run_stream(model, pairs.clean), run_stream(model, pairs.corrupted)
        self.clean_rows = self.losses(self.scored.pick(self.clean.inputs[-1]).unsqueeze(0))[0]

    @torch.no_grad()
    def effect(self, path: Path) -> PathEffect:
        """Patch one path, and the same with random writers. Raises: UsageError if the model has no such path.

        A random writer makes the same change in another direction: turned by a random rotation, it has the same size
        in every row and at every position and depends on the rows in the same way.
        """
        error = path_error(self.model, path)
        if error is not None:
            raise error
        change = self.change(path.writer)
        rows = [self.patched_rows(path, part) for part in change.split(CHUNK)]
        (delta, *turned), (se, *_) = ratio(torch.cat(rows) - self.clean_rows, self.scored.counts.double().cpu())
        null, n_pairs = max(map(abs, turned)), len(self.pairs.clean)
        return PathEffect(path.writer, path.reader, path.part, delta, se, null, n_pairs)

    def change(self, writer: Writer) -> Change:
        """Compute what a writer adds in the corrupted rows more than in the clean ones, then RANDOM turns of it."""
        basis = writing_basis(self.model, writer)
        generator = stream_generator(self.seed, "random writers", basis.size(1))
        drawn = torch.randn(RANDOM, *basis.shape, generator=generator, dtype=torch.float64)
        turns, R = torch.linalg.qr(drawn)
        turns = turns * R.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)  # else not every rotation is equally likely
        change = written(self.model, self.corrupted, writer) - written(self.model, self.clean, writer)
        return Change(change @ basis, torch.cat([basis.unsqueeze(0), turns.to(basis)]).transpose(1, 2))

    def patched_rows(self, path: Path, change: Change) -> Tensor:
        """Compute the loss sums (S, B) where a path carries a change of what its writer adds, in S directions."""
        with eval_mode(self.model):
            if path.part is None:
                return self.losses(self.picked(change).added_to(self.scored.pick(self.clean.inputs[-1])))
            outputs = [self.scored.pick(attention) for attention in self.clean.attention]
            for reader in path.readers:
                outputs[reader.layer] = outputs[reader.layer] + self.output_change(reader, path.part, change)
            first = min(reader.layer for reader in path.readers)
            x = self.scored.pick(self.clean.inputs[first])
            for block, y in zip(self.model.blocks[first:], outputs[first:], strict=True):
                x = block.after_attention(x, y)
            return self.losses(x)

    def picked(self, change: Change) -> Change:
        """Select the scored places of a change."""
        return change._replace(coordinates=self.scored.pick(change.coordinates))

    def output_change(self, reader: Head, part: Part, change: Change) -> Tensor:
        """Compute how a head's part of the attention output changes at the scored places if one of its parts does.

        Returns (S, B, Q, D); the head reads the change of the stream for its queries, keys or values.
        """
        layer, h = reader
        norm, attn, x = self.model.blocks[layer].attn_norm, self.model.attention[layer], self.clean.inputs[layer]
        pos = self.pos[self.scored.index]  # (B, Q): only scored queries are needed
        streams = {"q": (self.scored.pick(x), pos), "k": (x, self.pos), "v": (x, self.pos)}
        own, at = streams[part]
        streams[part] = (self.picked(change) if part == "q" else change).added_to(own), at
        q, k, v = (project(attn, one, h, norm(streams[one][0]), streams[one][1]) for one in PARTS)
        z = head_weights(attn, h, q, k, pos, self.pos).to(v.dtype) @ v  # (S, B, Q, d)
        return (z - self.scored.pick(self.clean.heads[layer][:, h])) @ output_maps(attn)[h]

    def losses(self, x: Tensor) -> Tensor:
        """Compute the loss sums (S, B) of final vectors at the scored places (S, B, Q, D)."""
        return self.scored.losses(self.model.lm_head(self.model.final_norm(x)))

    @torch.no_grad()
    def activations(self, heads: Sequence[Head]) -> list[ActivationEffect]:
        """Replace each head's whole output by that of the corrupted rows; all that follows is computed anew."""
        ablator = Ablator(self.model, self.pairs.batch)
        ablator.outputs = self.corrupted.heads
        effects = ablator.effects(ablator.ablated_rows("output", ablator.masks([[head] for head in heads])))
        return [
            ActivationEffect(*head, *effect, len(self.pairs.clean)) for head, effect in zip(heads, effects, strict=True)
        ]


def writing_basis(model: TransformerLM, writer: Writer) -> Tensor:
    """Return an orthonormal basis (D, r) of the directions that a writer writes in."""
    D = model.lm_head.weight.size(1)
    maps = []
    for member in Path(writer).writers:
        if isinstance(member, Head):
            maps.append(output_maps(model.attention[member.layer])[member.head])  # (d, D)
        elif isinstance(member, Mlp):
            mlp = model.blocks[member.layer].mlp
            maps += [] if mlp is None else [mlp.down.weight.t()]
        else:
            maps.append(torch.eye(D).to(model.lm_head.weight))
    joined = torch.cat(maps)
    if len(joined) >= D:
        return torch.eye(D).to(joined)
    return torch.linalg.qr(joined.t().double())[0].to(joined)


def project(attn: MultiHeadSelfAttention, part: Part, head: int, x: Tensor, pos: Tensor) -> Tensor:
    """Compute the queries, keys or values of one head from x (..., T, D): (..., T, d), rotated by pos."""
    index = PARTS.index(part)
    group = head if part == "q" else head // (attn.n_heads // attn.n_kv_heads)
    first = sum(attn.widths[:index]) + group * attn.d_head
    rows, fused = slice(first, first + attn.d_head), attn.qkv_proj
    y = F.linear(x, fused.weight[rows], None if fused.bias is None else fused.bias[rows])
    return y if part == "v" else attn.positions.rotate(y.unsqueeze(-3), y.unsqueeze(-3), pos)[index].squeeze(-3)


def head_weights(attn: MultiHeadSelfAttention, head: int, q: Tensor, k: Tensor, pos: Tensor, k_pos: Tensor) -> Tensor:
    """Compute one head's weights of queries (..., B, Q, d), at positions pos (B, Q), on keys (..., B, T, d)."""
    visible = attn.visible[pos][..., : len(k_pos)]  # (B, Q, T)
    if attn.kind == "uniform":
        return uniform_weights(visible, torch.promote_types(q.dtype, torch.float32))
    if attn.kind == "linear":
        return linear_weights(q, k, visible)
    bias = attn.positions.bias(pos, k_pos)
    return attention_weights(q, k, visible, None if bias is None else bias[:, head])


def all_paths(model: TransformerLM) -> list[Path]:
    """List the paths between every two heads, and from every head to the logits, that this model has."""
    paths = [
        Path(writer, reader, part)
        for writer in model.heads
        for reader in model.heads
        if writer.layer < reader.layer
        for part in PARTS
    ]
    paths += [Path(writer) for writer in model.heads]
    return [path for path in paths if path_error(model, path) is None]


def path_patch(model: TransformerLM, task: Task, seed: int, paths: Sequence[Path]) -> list[PathEffect]:
    """Patch paths on held-out rows, each with its null.

    Raises: UsageError for a path that the model does not have (`path_error`), or if there are no rows (`draw_pairs`).
    """
    patcher = patcher_of(model, task, seed)
    return [patcher.effect(path) for path in paths]


def activation_patch(
    model: TransformerLM, task: Task, seed: int, heads: Sequence[Head] | None = None
) -> list[ActivationEffect]:
    """Patch the whole output of each head, by default of all, on the rows of `path_patch`. Raises: UsageError."""
    return patcher_of(model, task, seed).activations(model.heads if heads is None else heads)


def patcher_of(model: TransformerLM, task: Task, seed: int) -> Patcher:
    """Draw the rows and run them. Raises: UsageError if the attention is custom or crosses, or there are no rows."""
    _ = model.attention  # refuses custom attention
    refuse_encoder_decoder(bool(model.source), "patching")
    return Patcher(model, draw_pairs(model, task, seed), seed)
