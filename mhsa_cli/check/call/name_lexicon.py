"""The usual names of sizes, inputs and weights."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Kind -> its usual names, without underscores, in lower case.
SIZE_NAMES: dict[str, str] = {
    "d_model": "dmodel emb embed feats hiddendim dimmodel nembed nembd embeddim embsize embedsize embeddingdim "
    "embdim hiddim numhiddens hiddensize modeldim inputdim querydim qdim dim dimin din indim width dembed dembd "
    "modelsize modelwidth channels infeatures features hidden size inputsize dinput embeddingsize nunits "
    "units d c dimembed embeddinglength dm e nstate nx nhidden nfeatures edim dembedding modeld modeldimension "
    "embeddingdimension dimension hiddendimension kvdim kdim vdim dimq dimk dimv querysize keysize valuesize cdim "
    "contextdim dimcontext crossattentiondim crossdim memorydim encoderdim decoderdim dcontext dmemory kvsize",
    "d_out": "dout dimout outdim outputdim outfeatures doutput outputsize kdimtotal doutkq doutqk doutv doutq doutk",
    "n_heads": "numheads nheads nhead heads head h numhead headnum nrheads headsnum numattentionheads "
    "nattentionheads headcount numofheads attentionheads numattnheads nattnheads nh numberofheads numqheads nqheads "
    "numqueryheads nqueryheads qheads nqhead nbheads nbhead numberofattentionheads mhanumheads",
    "d_head": "dk dv dq dhead headdim headsize dimhead dkey dvalue keydim valuedim headwidth hs dh dimperhead headdims "
    "attentionheadsize attnheadsize headdimension sizeperhead dimsperhead dperhead headfeatures dimheads",
    "n_kv_heads": "nkvheads numkvheads kvheads nkvhead numkeyvalueheads numquerygroups ngroups numgroups kvhead "
    "nkvgroups numkvgroups nkeyvalueheads kvnheads",
    "seq_len": "maxseqlen contextlength blocksize seqlen nctx maxlen ctxlen maxpositionembeddings maxlength "
    "seqlength t l maxt contextlen contextsize ctxsize npositions maxcontext maxseqlength sequencelength "
    "maxsequencelength context maxcontextlength maxsequencelen maxctx maxblocksize contextwindow "
    "maxtokens ntokens seqsize maxsize tmax ctxtlen ctxtlength nctxt maxctxtlen maxcontextlen contextlenmax "
    "maxposition maxpositions maxpos seqlenmax lmax",
    "batch_size": "batchsize batch b bs nbatch",
    "max_batch_size": "maxbatchsize maxbatch maxbs maxbsz maxnbatch",
    "theta": "theta ropetheta base ropebase rotarybase rotaryembbase",
    "seed": "seed randomseed randomstate",
    "device": "device",
    "dtype": "dtype",
    "batch_first": "batchfirst",
    "causal": "causal iscausal masked usemask usecausalmask isdecoder autoregressive causalmask decoder applymask "
    "maskfuture",
    "vocab_size": "vocabsize nvocab",
    "n_layers": "nlayers numlayers nlayer layers depth layeridx layerid layer",
}
INPUT_NAMES: dict[str, str] = {
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
    "freqs": "freqscis freqcis freqscomplex freqs ropefreqs freqsrope rotaryfreqs angles ropeangles",
    "cos": "cos coscached freqscos freqcos cosine cosines ropecos costable rotarycos",
    "sin": "sin sincached freqssin freqsin sine sines ropesin sintable rotarysin",
    "cos_sin": "positionembeddings positionembedding cossin sincos rotaryembeddings rotaryemb ropeembeddings ropeemb "
    "ropecossin rotarycossin rotaryposemb rotaryposembs rotary rope posemb posembs positionembs",
}
# Weights passed to a function, by role.
WEIGHT_NAMES: dict[str, str] = {
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
class BlockSizes:
    """The sizes that a block is built and called with."""

    d_model: int
    n_heads: int
    seq_len: int
    batch_size: int
    max_seq_len: int
    dropout: float = 0.0

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    def of(self, kind: str) -> Any:
        """Value for a kind of parameter."""
        values: dict[str, Any] = {"d_out": self.d_model, "n_kv_heads": 1 if self.n_heads % 2 else self.n_heads // 2,
                  "seq_len": self.max_seq_len, "max_batch_size": 32, "vocab_size": 64, "n_layers": 0, "theta": 10000.0,
                  "seed": 0, "device": "cpu", "dtype": None, "batch_first": True, "causal": True,
                  "bias": True}  # fmt: skip
        return values[kind] if kind in values else getattr(self, kind)


def normalized(name: str) -> str:
    """Reduce a name to lower-case letters and digits."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _kinds(table: dict[str, str]) -> dict[str, str]:
    """Map each name of a table to its kind."""
    return {name: kind for kind, names in table.items() for name in names.split()}


_SIZE_KINDS, _INPUT_KINDS, _WEIGHT_KINDS = map(_kinds, (SIZE_NAMES, INPUT_NAMES, WEIGHT_NAMES))


def size_kind(name: str) -> str:
    """Kind of a size or setting by its name, or ""."""
    word = normalized(name)
    return _SIZE_KINDS.get(word) or ("dropout" if "drop" in word else "bias" if "bias" in word else "")


def input_kind(name: str) -> str:
    """Kind of an input of a call by its name, or ""."""
    return _INPUT_KINDS.get(normalized(name), "")


def weight_kind(name: str) -> str:
    """Role of a weight that a function takes by its name, or ""."""
    return _WEIGHT_KINDS.get(normalized(name), "")


def signature_of(obj: Callable[..., Any]) -> inspect.Signature:
    """Read a signature. Raises: TypeError if it has none that can be read."""
    try:
        return inspect.signature(obj)
    except ValueError as error:
        raise TypeError(f"{getattr(obj, '__name__', obj)} has no signature that can be read") from error
