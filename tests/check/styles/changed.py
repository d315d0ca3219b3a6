"""Every style again, changed as real code differs: with parts that are off, with unfamiliar names, in two files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tests.check.styles.annotated import ANNOTATED
from tests.check.styles.arrays import NUMPY, NUMPY_CLASS
from tests.check.styles.framed import POSTNORM, PRENORM
from tests.check.styles.fused import FUSED
from tests.check.styles.parameters import PARAMETERS
from tests.check.styles.per_head import PER_HEAD
from tests.check.styles.rotary import ROPE, ROPE_COMPLEX, ROPE_HALF
from tests.check.styles.template import MARK, Style
from tests.check.styles.three import THREE

_PLAIN = (FUSED, THREE, NUMPY, NUMPY_CLASS, PARAMETERS, PER_HEAD, ANNOTATED)
_OTHERS = (ROPE, ROPE_HALF, ROPE_COMPLEX, PRENORM, POSTNORM)
STYLES = {style.name: style for style in (*_PLAIN, *_OTHERS)}

UNUSED = '''
def sinusoids(n, d):
    """Fixed positions, added to the token vectors."""
    angle = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


def look_ahead_mask(n):
    return torch.triu(torch.full((n, n), float("-inf")), diagonal=1)


class Rotary(nn.Module):
    """Rotary positions of t (B, H, T, d_head)."""

    def forward(self, t):
        n, d = t.shape[-2:]
        angle = torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
        even, odd = t[..., ::2], t[..., 1::2]
        turned = even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()
        return torch.stack(turned, dim=-1).flatten(-2)


'''
_UNUSED_ARRAYS = '''
def look_ahead_mask(n):
    return np.triu(np.full((n, n), -np.inf), k=1)


def rotary(t):
    """Rotary positions of t (B, H, T, d_head)."""
    n, d = t.shape[-2:]
    angle = np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    even, odd = t[..., ::2], t[..., 1::2]
    turned = (even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle))
    return np.stack(turned, axis=-1).reshape(t.shape)


'''


def _rotated(q: str, k: str, turn: str = "self.rope({})") -> str:
    return f"if self.rope is not None:\n    {q}, {k} = {turn.format(q)}, {turn.format(k)}"


def _normed(q: str, k: str) -> str:
    return f"if self.qk_norm:\n    {q}, {k} = (nn.functional.normalize(t, dim=-1) for t in ({q}, {k}))"


@dataclass(frozen=True)
class Off:
    """What is added to a style and is off: lines before the line of a slot (or after it), behind a parameter."""

    slot: str
    lines: str
    parameter: str = "use_rope=False"
    made: str = "self.rope = Rotary() if use_rope else None"
    of: str = "def __init__("  # the function that gets the parameter: the first one with this text
    after: bool = False


_NORM = ("qk_norm=False", "self.qk_norm = qk_norm")
_TURN = ("turn=None", "", "def multi_head_attention(")
_OFF = {
    "fused": Off("scores", _rotated("q", "k")),
    "three": Off("scores", _rotated("q", "k", "self.rope({}.transpose(1, 2)).transpose(1, 2)")),
    "numpy": Off("scores", "if turn is not None:\n    Q, K = turn(Q), turn(K)", *_TURN),
    "numpy_class": Off("attend", _rotated("q", "k"), made="self.rope = rotary if use_rope else None"),
    "parameters": Off("scores", _rotated("q", "k")),
    "per_head": Off("scores", _rotated("q", "k")),
    "annotated": Off("attend", _rotated("query", "key")),
    "rope": Off("more", _normed("q", "k"), *_NORM, of="d_model, num_heads", after=True),
    "rope_half": Off("more", _normed("q", "k"), *_NORM, after=True),
    "rope_complex": Off("more", _normed("xq", "xk"), *_NORM, after=True),
    "prenorm": Off("scores", _rotated("q", "k")),
    "postnorm": Off("scores", _rotated("q", "k")),
}


def _switched_off(style: Style, off: Off) -> Style:
    lines = style.text.strip("\n").split("\n")
    first = next(n for n, line in enumerate(lines) if line.startswith(("class ", "def ")))
    at = next(n for n, line in enumerate(lines) if line.endswith(f"{MARK}{off.slot}"))
    function = next(n for n, line in enumerate(lines) if off.of in line)
    indent = " " * (len(lines[at]) - len(lines[at].lstrip()))
    added = [indent + line for line in off.lines.split("\n")]
    place = at + 1 if off.after else at
    lines[place:place] = added
    if off.made:
        calls_super = "super().__init__()" in lines[function + 1]
        lines.insert(function + 1 + calls_super, f"        {off.made}")
    lines[function] = re.sub(r"(.*)\)", rf"\1, {off.parameter})", lines[function])
    unused = (_UNUSED_ARRAYS if style.numpy else UNUSED).strip("\n").split("\n")
    lines[first:first] = [*unused, "", ""]
    return replace(style, name=f"{style.name}_off", text="\n".join(lines))


OFF = {one.name: one for one in (_switched_off(STYLES[name], off) for name, off in _OFF.items())}

# Old and new names, in the text, the faults, and the calls; those of parameters that a caller passes by name stay.
_RENAMED = {
    "fused": (
        "q:aa k:bb v:cc scores:grid weights:shares dropped:kept context:mixed merged:joined qkv:inner "
        "proj:last drop:thin mask:below n_heads:pieces d_head:part d_model:size CausalSelfAttention:Mixer"
    ),
    "three": (
        "q:aa k:bb v:cc energy:grid attention:shares context:mixed out:joined future:upper heads:pieces "
        "head_dim:part num_heads:count embed_dim:size query:one key:two value:three fc_out:four "
        "dropout:thin MultiHeadAttention:Mixer"
    ),
    "numpy": (
        "Q:aa K:bb V:cc scores:grid weights:shares heads:mixed future:upper d_head:part split_heads:cut "
        "merge_heads:join softmax:squash z:numbers e:raised Y:result multi_head_attention:mixer"
    ),
    "numpy_class": (
        "q:aa k:bb v:cc Q:aa K:bb V:cc logits:grid weights:shares context:mixed d_k:part d_head:part "
        "n_heads:pieces d_model:size _split:cut _merge:join scaled_dot_product_attention:core "
        "MultiHeadAttention:Mixer W_q:A W_k:B W_v:C W_o:E"
    ),
    "parameters": (
        "q:aa k:bb v:cc dots:grid attn:shares out:joined split:cut merge:join dim_head:part heads:pieces "
        "dim:size w_q:A w_k:B w_v:C w_o:E dropout:thin SelfAttention:Mixer"
    ),
    "per_head": (
        "q:aa k:bb v:cc wei:grid tril:below key:two query:one value:three proj:last head_size:part "
        "n_head:pieces n_embd:size Head:Piece heads:parts dropout:thin MultiHeadAttention:Mixer"
    ),
    "annotated": (
        "query:aa key:bb value:cc scores:grid weights:shares attention:core attn:seen linears:maps d_k:part "
        "h:pieces d_model:size MultiHeadedAttention:Mixer"
    ),
    "rope": (
        "q:aa k:bb v:cc scores:grid context:mixed causal_mask:below causal:lower q_proj:one k_proj:two "
        "v_proj:three out_proj:four rope:spin RotaryEmbedding:Turner split:cut head_dim:part "
        "num_heads:pieces MultiHeadSelfAttention:Mixer"
    ),
    "rope_half": (
        "q:aa k:bb v:cc scores:grid attn_output:mixed qkv_proj:inner o_proj:last rotate_half:swapped "
        "inv_freq:steps head_dim:part n_heads:pieces RopeAttention:Mixer"
    ),
    "rope_complex": (
        "xq:aa xk:bb xv:cc wq:one wk:two wv:three wo:four freqs_cis:table precompute_freqs_cis:make_table "
        "apply_rotary_emb:spin n_heads:pieces head_dim:part output:mixed Attention:Mixer"
    ),
}
# They are faults of names, or of an order that only names give.
_OF_NAMES = {"names_q_k_swapped", "names_k_v_swapped", "names_q_v_swapped"}


def _renamed(style: Style, names: str) -> Style:
    new = dict(pair.split(":") for pair in names.split())

    def rename(text: str) -> str:
        # Not torch.tril(...), nor k=1, an argument of NumPy.
        name = r"(?<!torch\.)(?<!np\.)\b(?:[A-Za-z_]\w+\b|[A-Za-z_]\b(?!=[^=]))"
        return re.sub(name, lambda found: new.get(found.group(), found.group()), text)

    def written(text: str) -> str:
        """Rename in the code of each line, not in the name of its slot."""
        lines = (line.partition(MARK) for line in text.split("\n"))
        return "\n".join(rename(code) + mark + slot for code, mark, slot in lines)

    faults = {
        fault: {slot: rename(line) for slot, line in lines.items()}
        for fault, lines in style.faults.items()
        if fault not in _OF_NAMES
    }
    return replace(
        style,
        name=f"{style.name}_renamed",
        entry=rename(style.entry),
        text=written(style.text),
        faults=faults,
        make=rename(style.make),
    )


RENAMED = {one.name: one for one in (_renamed(STYLES[name], names) for name, names in _RENAMED.items())}

# Lines of forward that move into a function of the second file: those from one slot to another. Where a style has
# helpers, these move instead.
_MOVED = {
    "fused": ("scores", "mix"),
    "three": ("scores", "mix"),
    "parameters": ("scores", "mix"),
    "prenorm": ("scores", "softmax"),
    "postnorm": ("scores", "softmax"),
}
SECOND = "core_functions"  # name of the second file
BEGIN, END = "# begin", "# end"


@dataclass(frozen=True)
class InTwo:
    """A style whose helpers, head or scores lie in a second file."""

    style: Style

    @property
    def name(self) -> str:
        """Name of it as a style."""
        return f"{self.style.name}_two"

    def right(self) -> tuple[str, str]:
        """Write both files of the right source."""
        first, second, _ = self._write([])
        return first, second

    def wrong(self, faults: list[str]) -> tuple[str, str, bool, int]:
        """Write both files with faults planted; tell whether the first one is in the second file, and its line."""
        first, second, (in_second, line) = self._write(faults)
        return first, second, in_second, line

    def _write(self, faults: list[str]) -> tuple[str, str, tuple[bool, int]]:
        style, marks = self.style, dict[str, str]()
        if style.name in _MOVED:
            lines, (begin, end) = style.text.split("\n"), _MOVED[style.name]
            at = [next(n for n, line in enumerate(lines) if line.endswith(f"{MARK}{slot}")) for slot in (begin, end)]
            marks = {"begin": BEGIN, "end": END}
            lines.insert(at[1] + 1, f"      {MARK}end")
            lines.insert(at[0], f"      {MARK}begin")
            style = replace(style, text="\n".join(lines), faults={**style.faults, "": marks})
        source, line = style.wrong([*faults, ""] if marks else faults)
        return outlined(source, line) if marks else _parted(source, style.entry, line)


IN_TWO = {one.name: one for one in map(InTwo, STYLES.values())}


def _imports(source: str) -> list[str]:
    return [line for line in source.split("\n") if line.startswith(("import ", "from "))]


def _parted(source: str, entry: str, at: int) -> tuple[str, str, tuple[bool, int]]:
    """Move all definitions but one into the second file."""
    lines, moved, names = source.split("\n"), [], []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name != entry:
            moved += list(range(node.lineno, (node.end_lineno or 0) + 1)) + [0, 0]
            names.append(node.name)
    first = [*_imports(source), f"from {SECOND} import {', '.join(names)}"]
    kept = [n for n in range(1, len(lines) + 1) if n not in moved and lines[n - 1] not in first]
    head = _imports(source) + ["", ""]
    second = head + [lines[n - 1] if n else "" for n in moved]
    in_second = at in moved
    place = (moved.index(at) + len(head) if in_second else (kept.index(at) if at in kept else 0) + len(first)) + 1
    return "\n".join(first + [lines[n - 1] for n in kept]), "\n".join(second).rstrip() + "\n", (in_second, place)


def outlined(source: str, at: int) -> tuple[str, str, tuple[bool, int]]:
    """Move the lines between the marks into a function of the second file."""
    lines = source.split("\n")
    begin, end = (next(n for n, line in enumerate(lines, 1) if line.strip() == mark) for mark in (BEGIN, END))
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    function = next(f for f in functions if f.lineno < begin < (f.end_lineno or 0))
    before, inside, after = set[str](), list[ast.Name](), set[str]()
    before |= {argument.arg for argument in function.args.args}
    for name in _names(function):
        if name.lineno < begin:
            before.add(name.id)
        elif name.lineno < end:
            inside.append(name)
        elif isinstance(name.ctx, ast.Load):
            after.add(name.id)
    arguments = [name for name in dict.fromkeys(one.id for one in inside) if name in before]
    results = [name for name in dict.fromkeys(n.id for n in inside if isinstance(n.ctx, ast.Store)) if name in after]
    call = f"        {', '.join(results)} = mix_values({', '.join(arguments)})"
    imports = _imports(source)
    top = max(n for n, line in enumerate(lines) if line in imports) + 1
    first = [*lines[:top], f"from {SECOND} import mix_values", *lines[top : begin - 1], call, *lines[end:]]
    second = [*imports, "", "", f"def mix_values({', '.join(arguments)}):"]
    head = len(second)
    second += [line[4:] for line in lines[begin : end - 1]] + [f"    return {', '.join(results)}", ""]
    if begin < at < end:
        return "\n".join(first), "\n".join(second), (True, at - begin + head)
    return "\n".join(first), "\n".join(second), (False, at + 1 if at < begin else at - (end - begin) + 1)


def _names(function: ast.FunctionDef) -> Iterator[ast.Name]:
    """List the names of a function in order, without those that a comprehension binds."""
    bound = {
        id(name) for node in ast.walk(function) if isinstance(node, ast.comprehension) for name in ast.walk(node.target)
    }
    found = [node for node in ast.walk(function) if isinstance(node, ast.Name) and id(node) not in bound]
    yield from sorted(found, key=lambda name: (name.lineno, name.col_offset))


def other_names(style: str) -> Mapping[str, set[str]]:
    """Give faults that are the same in a style without familiar names: which matrix is whose is not known."""
    if not style.endswith("_renamed"):
        return {}
    swapped = {"query_from_key", "key_from_query"}, {"value_from_key", "value_from_query"}
    return {one: group for group in swapped for one in group}
