"""`mhsa check` of a file that changes the grader in its own process: no grade of it is called right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mhsa_cli.check import confirm
from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.read.reference import FRAMES, ROPES, Spec
from mhsa_cli.check.source.load import load
from mhsa_cli.records.check import REFERENCE, UNCONFIRMED, GradeOptions
from tests.commands.shell import mhsa

BLOCK = """\
import gc, json, time, torch
from dataclasses import replace
from multiprocessing.connection import Connection
from torch import nn
import mhsa_cli
from mhsa_cli.check import confirm, grade, laws, tensors
from mhsa_cli.check.laws import outcome
from mhsa_cli.check.match import context, search
from mhsa_cli.check.read import reference

def called_right(found):
    held = [replace(law, passed=True) for law in found.laws]
    return replace(found, verdict="right", faults=[], laws=held, switched=[])


def lie():
    right = [{"title": n, "passed": True, "max_difference": 0.0, "finding": "", "id": n} for n in laws.LAWS]
    said = {"block": "x", "verdict": "right", "detected": {}, "laws": right, "faults": [], "notes": []}
    said |= {"tried": [], "switched": []}
    role = lambda at: {"shape": [1, 4, 4], "at": confirm._bytes(torch.arange(at, at + 16, dtype=torch.int32))}
    roles = {"q": role(0), "k": role(16), "v": role(32), **dict.fromkeys(["out", "q_bias", "k_bias", "v_bias"])}
    sizes = {"shapes": [[4, 4, 4]], "norms": [False], "sizes": [2, 7, 4], "positions": False}
    claim = {**sizes, "roles": roles, "spec": reference.Spec()._asdict()}
    answer = {"shape": [2, 7, 4], "y": confirm._bytes(torch.zeros(2, 7, 4, dtype=torch.float64))}
    pipe = next(one for one in gc.get_objects() if isinstance(one, Connection))
    [pipe.send_bytes(json.dumps(one).encode()) for one in ({"grade": said, "claim": claim}, {"answer": answer})]
    time.sleep(600)


class Attention(nn.Module):
    last = None
    {trick}

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        later = torch.ones(T, T, dtype=torch.bool).triu(1)
        weights = {weights}
        type(self).last = self.out((weights @ v).transpose(1, 2).reshape(B, T, D))
        return type(self).last
"""
RIGHT = "(q @ k.mT / q.size(-1) ** 0.5).masked_fill(later, -torch.inf).softmax(-1)"
TANH = "(q @ k.mT).masked_fill(later, 0).tanh()"  # no known variant
WIDE = "(q @ k.mT / D ** 0.5).masked_fill(later, -torch.inf).softmax(-1)"
PLAIN = {"honest": RIGHT, "wrong": WIDE}
HOLD = "[laws.LAWS.update({n: one._replace(check=lambda c: outcome.HOLDS)}) for n, one in list(laws.LAWS.items())]"
NO_FAULT = "search.add_layout_faults.__code__ = (lambda layout, faults: ()).__code__"
SWAP = "true = grade.grade; confirm.grade = lambda *given, true=true: called_right(true(*given))"
TRICKS = {  # by name: the lines that it runs as it is imported, and how its weights are computed
    "drops_the_laws": ("laws.LAWS.clear()", TANH),
    "lets_the_laws_hold": (HOLD, TANH),
    "widens_the_tolerance": ("search.TOLERANCE = outcome.TOLERANCE = 1e9", TANH),
    "finds_no_difference": (f"search.Case.difference = lambda *_: 0.0; {HOLD}", TANH),
    "is_its_own_reference": ("reference.Reference.output = lambda *_: Attention.last.double()", WIDE),
    "forgets_its_fault": (f"context.Context.right_spec = property(lambda c: c.match.spec); {NO_FAULT}", WIDE),
    "swaps_the_grade": (SWAP, WIDE),
    "writes_into_the_pipe": ("lie()", WIDE),
}


def written(name: str) -> str:
    """Write the file of a trick."""
    trick, weights = TRICKS[name]
    return BLOCK.replace("{trick}", trick).replace("{weights}", weights)


def graded() -> dict[str, dict[str, str]]:
    """Grade all tricks, and the block without any: right, and wrong."""
    Path("all").mkdir(exist_ok=True)
    files = {name: written(name) for name in TRICKS}
    files |= {name: BLOCK.replace("{trick}", "").replace("{weights}", text) for name, text in PLAIN.items()}
    for name, text in files.items():
        Path(f"all/{name}.py").write_text(text)
    said = mhsa("check", "all", "--entry", "Attention", "--json", "--seconds", 60)
    return {Path(item["block"]).stem: item for item in said.json["blocks"]}


def test_no_trick_is_called_right(here: Path) -> None:
    found = graded()
    assert found.pop("honest")["verdict"] == "right" and found.pop("wrong")["verdict"] == "wrong"
    assert {name: item["failure"] for name, item in found.items()} == dict.fromkeys(sorted(TRICKS), UNCONFIRMED)


def test_a_right_form_has_no_fault() -> None:
    """Else an honest block would be refused."""
    forms = [form for fault in FAULTS.values() for form in fault.forms if form and form != {"mask": "none"}]
    for frame in FRAMES:
        for rope in ("none", *ROPES):
            for mask in ("causal", "none"):
                spec = Spec(frame, rope=rope, mask=mask)._asdict()
                assert not [form for form in forms if all(spec[stage] == how for stage, how in form.items())]


def test_a_claim_is_judged_by_what_it_says(tmp_path: Path) -> None:
    """Each part of a true claim, changed, is refused; the claim itself is not, whatever the seed."""
    contexts: list[Context] = []
    path = tmp_path / "block.py"
    path.write_text(BLOCK.replace("{trick}", "").replace("{weights}", RIGHT))
    found = confirm.grade(load(f"{path}:Attention"), GradeOptions(), lambda _: None, contexts.append)
    (c,), laws = contexts, [(law.id, law.passed) for law in found.laws]
    claimed = confirm.claim(c)
    assert claimed is not None
    for seed in range(5):
        assert confirm.refusal(laws, claimed, seed, confirm.answer(c, claimed, seed), True) is None
    answered = confirm.answer(c, claimed, 5)

    def refused(laws: Any = laws, seed: int = 5, causal: bool | None = None, **changes: Any) -> str:
        found = confirm.refusal(laws, {**claimed, **changes}, seed, answered, causal)
        return "" if found is None else str(found[0])

    assert refused() == ""
    assert refused(seed=6) == "differs" and refused(laws[1:]) == "laws"
    assert refused([(name, None if name == REFERENCE else passed) for name, passed in laws]) == "laws"
    spec, roles = claimed["spec"], claimed["roles"]
    assert refused(spec={**spec, "scale": "d_model"}) == refused(spec={**spec, "scale": "x0.3"}) == "fault"
    assert refused(spec={**spec, "mask": "none"}) == "differs"
    assert refused(spec={**spec, "mask": "none"}, causal=True) == "fault"
    assert refused(roles={**roles, "k": roles["q"]}) == refused(roles={**roles, "out": None}) == "fault"
    assert refused(roles={**roles, "q": roles["k"], "k": roles["q"]}) == "differs"
    assert refused(sizes=[2, 7, 10**6]) == refused(shapes=[[10**9, 10**9]]) == refused(sizes=None) == "claim"
