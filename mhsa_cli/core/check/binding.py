"""Names that people give to sizes, inputs and weights, and how a signature is filled with them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

# Kind -> the names people use for it, without underscores, in lower case.
SIZES: dict[str, str] = {
    "d_model": "dmodel emb embed feats hiddendim dimmodel nembed nembd embeddim embsize embedsize embeddingdim "
    "embdim hiddim numhiddens hiddensize modeldim inputdim querydim qdim dim dimin din indim width dembed dembd "
    "modelsize modelwidth channels infeatures features hidden size inputsize dinput embeddingsize nunits "
    "units d c dimembed embeddinglength dm e",
    "d_out": "dout dimout outdim outputdim outfeatures doutput outputsize kdimtotal",
    "n_heads": "numheads nheads nhead heads head h numhead headnum nrheads headsnum numattentionheads "
    "nattentionheads headcount numofheads attentionheads numattnheads nattnheads nh",
    "d_head": "dk dv dq dhead headdim headsize dimhead dkey dvalue keydim valuedim headwidth hs dh dimperhead headdims",
    "n_kv_heads": "nkvheads numkvheads kvheads nkvhead numkeyvalueheads numquerygroups ngroups numgroups kvhead",
    "seq_len": "maxseqlen contextlength blocksize seqlen nctx maxlen ctxlen maxpositionembeddings maxlength "
    "seqlength t l maxt contextlen contextsize ctxsize npositions maxcontext maxseqlength sequencelength "
    "maxsequencelength context maxcontextlength maxsequencelen maxctx maxblocksize contextwindow "
    "maxtokens ntokens seqsize maxsize tmax",
    "batch_size": "batchsize batch b bs nbatch",
    "theta": "theta ropetheta base ropebase rotarybase",
    "seed": "seed randomseed randomstate",
    "device": "device",
    "dtype": "dtype",
    "batch_first": "batchfirst",
    "causal": "causal iscausal masked usemask usecausalmask isdecoder autoregressive causalmask decoder applymask "
    "maskfuture",
    "vocab_size": "vocabsize nvocab",
    "n_layers": "nlayers numlayers nlayer layers depth layeridx layerid layer",
}
INPUTS: dict[str, str] = {
    "x": "x inputs input hiddenstates hidden tokens embeddings infeatures seq sequence features xs inp emb "
    "data xin src in",
    "q": "q query queries xq qinput queryinput qs queryin",
    "k": "k key keys xk kinput keyinput ks keyin",
    "v": "v value values xv vinput valueinput vs valuein val",
    "mask": "mask attnmask attentionmask causalmask srcmask maskarr m attnbias bias maskmatrix tgtmask "
    "lookaheadmask validlens validlen",
    "positions": "tokenpositions positions pos positionids inputpos position startpos tokenpos",
    "weights": "returnweights needweights outputattentions returnattn returnattention returnattentionweights "
    "returnattnweights outputattention returnscores",
    "causal": "causal iscausal masked usemask usecausalmask applymask autoregressive",
    "average": "averageattnweights",
    "memory": "memory mem context ctx encoderoutput encoderoutputs encoderhiddenstates encoderstates encout enc "
    "encoded kv keyvalue keyvalues kvinput xkv inputkv source other y x2 conditioning encoder encoderout",
    "training": "training train istraining",
    "freqs": "freqscis freqcis freqscomplex freqs",
    "cos": "cos coscached",
    "sin": "sin sincached",
}
# Weights that a function is given, by role.
WEIGHTS: dict[str, str] = {
    "q": "wq qprojweight wqs qweight queryweight weightq qw qproj wquery qmatrix",
    "k": "wk kprojweight kweight keyweight weightk kw kproj wkey kmatrix",
    "v": "wv vprojweight vweight valueweight weightv vw vproj wvalue vmatrix",
    "out": "wo oprojweight outputweight outprojweight oweight weighto woutput wout ow oproj projweight outweight "
    "outproj",
    "qkv": "wqkv qkvweight qkvprojweight cattn cattnw wattn qkvw inprojweight qkvproj",
    "q_bias": "bq qbias qb",
    "k_bias": "bk kbias kb",
    "v_bias": "bv vbias vb",
    "out_bias": "bo obias outbias bout ob",
    "qkv_bias": "bqkv qkvbias",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes something is built and called with: all different, lest one hide another. See `grade.SIZES`."""

    d_model: int
    n_heads: int
    seq_len: int
    batch_size: int
    max_seq_len: int
    dropout: float = 0.0

    @property
    def d_head(self) -> int:
        """Give the width of a head."""
        return self.d_model // self.n_heads

    def of(self, kind: str) -> Any:
        """Give the value for a kind of parameter."""
        sizes = {
            "d_model": self.d_model,
            "d_out": self.d_model,
            "n_heads": self.n_heads,
            "n_kv_heads": max(1, self.n_heads // 2),
            "d_head": self.d_head,
            "seq_len": self.max_seq_len,
            "batch_size": self.batch_size,
            "vocab_size": 64,
            "n_layers": 0,
        }
        others = {"theta": 10000.0, "seed": 0, "device": "cpu", "dtype": None, "dropout": self.dropout}
        return {**sizes, **others, "batch_first": True, "causal": True, "bias": True}[kind]


def plain(name: str) -> str:
    """Write a name without underscores, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def kind_of(name: str, table: Mapping[str, str]) -> str:
    """Look a name up: its kind, or "" if no table knows it."""
    word = plain(name)
    for kind, words in table.items():
        if word in words.split():
            return kind
    if table is SIZES:
        if "drop" in word:
            return "dropout"
        if "bias" in word:
            return "bias"
    return ""


class Settings(dict[str, Any]):
    """A config that answers by any usual name, as an attribute or an item."""

    def __init__(self, sizes: Sizes, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self._sizes = sizes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(f"the config has no {name!r}") from error

    def __missing__(self, name: str) -> Any:
        kind = kind_of(name, SIZES)
        if not kind or kind == "n_kv_heads":
            raise KeyError(name)
        return self._sizes.of(kind)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            dict.__contains__(self, name) or kind_of(name, SIZES) not in ("", "n_kv_heads")
        )

    def get(self, name: str, default: Any = None) -> Any:  # type: ignore[override]
        """Look a name up as a dict would."""
        return self[name] if name in self else default  # noqa: SIM401 (it would call itself)


CONFIGS = ("config", "cfg", "args", "hparams", "params", "configuration", "conf", "c", "settings", "modelargs", "opt")


def fillings(
    signature: inspect.Signature, sizes: Sizes, given: Mapping[str, Any], namespace: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """List the ways to fill a constructor's parameters, the likeliest first; `given` are the user's own.

    Raises: TypeError naming the parameter that nobody can guess.
    """
    first: dict[str, Any] = {}
    alternatives: dict[str, list[Any]] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in given:
            first[name] = given[name]
            continue
        values = list(_values(parameter, sizes, given, namespace, len(signature.parameters)))
        if values:
            first[name] = values[0]
            alternatives[name] = values[1:]
        elif parameter.default is parameter.empty:
            raise TypeError(f"its parameter {name!r} is no size that has a usual name")
    yield first
    for name, values in alternatives.items():
        for value in values:
            yield {**first, name: value}
    required = {
        n: v for n, v in first.items() if signature.parameters[n].default is inspect.Parameter.empty or n in given
    }
    if required != first:
        yield required


def _values(
    parameter: inspect.Parameter, sizes: Sizes, given: Mapping[str, Any], namespace: Mapping[str, Any], count: int
) -> Iterator[Any]:
    required = parameter.default is parameter.empty
    note = annotation_of(parameter, namespace)
    if isinstance(note, type) and dataclasses.is_dataclass(note):
        yield _filled(note, sizes, given)
        return
    kind = kind_of(parameter.name, SIZES)
    if plain(parameter.name) in CONFIGS and (count == 1 or kind != "d_model"):
        yield Settings(sizes, given)
        return
    if kind in ("bias", "device", "dtype", "theta", "seed", "n_layers", "vocab_size") and not required:
        return
    if kind == "n_kv_heads" and not required:
        if isinstance(parameter.default, int):  # it may not divide our number of heads
            yield sizes.of(kind)
        return
    if kind == "causal" and isinstance(parameter.default, bool):
        yield True
        return
    if kind == "dropout":
        if required or isinstance(parameter.default, int | float):
            yield sizes.dropout
        if required:
            yield nn.Dropout(sizes.dropout)
        return
    if kind == "batch_first" or (kind and (required or kind in ("d_model", "n_heads", "seq_len", "d_out"))):
        yield sizes.of(kind)
        if kind == "d_head":  # names lie: d_k that is the width, d_head that is the number of heads
            yield from (sizes.d_model, sizes.n_heads)
        return
    if required:
        if note in (bool, "bool"):
            yield from (False, True)
        elif note in (float, "float"):
            yield 0.0
        elif note is not int and str(parameter.annotation) != "int":
            yield from (None, False)


def _filled(config: type, sizes: Sizes, given: Mapping[str, Any]) -> Any:
    """Make a dataclass of settings with our sizes."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        if not field.init:
            continue
        kind = kind_of(field.name, SIZES)
        if field.name in given:
            values[field.name] = given[field.name]
        elif kind and kind not in (
            "bias",
            "device",
            "dtype",
            "n_kv_heads",
            "theta",
            "vocab_size",
            "n_layers",
            "seed",
            "causal",
        ):
            values[field.name] = sizes.of(kind)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            values[field.name] = sizes.of(kind) if kind else None
    return config(**values)


def annotation_of(parameter: inspect.Parameter, namespace: Mapping[str, Any]) -> Any:
    """Give a parameter's annotation, also one that is written as text."""
    note = parameter.annotation
    return note if isinstance(note, type) else namespace.get(str(note))


def unknown(target: Callable[..., Any], given: Mapping[str, Any], namespace: Mapping[str, Any]) -> list[str]:
    """List the parameters that have no default and no usual name: what was tried for them is a guess."""
    return [
        name
        for name, p in signature_of(target).parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and name not in given
        and not kind_of(name, SIZES) and plain(name) not in CONFIGS
        and not dataclasses.is_dataclass(annotation_of(p, namespace))
    ]  # fmt: skip


def signature_of(thing: Callable[..., Any]) -> inspect.Signature:
    """Read a signature. Raises: TypeError if it has none that can be read."""
    try:
        return inspect.signature(thing)
    except ValueError as error:
        raise TypeError(f"{getattr(thing, '__name__', thing)} has no signature that can be read") from error
