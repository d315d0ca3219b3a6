"""Weights in a dict: its keys are read in the code, and their names say what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.check.call.param_dicts import keys_read
from tests.check.grading import described, grade_text

ATTEND = """
import numpy as np

def attend(q, k, v):
    s = np.where(np.tri(len(q)) == 1, q @ k.T / np.sqrt(q.shape[-1]), -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v

def heads_of(q, k, v, n_heads):
    parts = zip(*(np.split(one, n_heads, -1) for one in (q, k, v)))
    return np.concatenate([attend(*part) for part in parts], -1)

def linear(x, w, b=None):
    return x @ w if b is None else x @ w + b

def project(x, weights):
    return x @ weights["w"] + weights["b"]
"""
WAYS = {
    "keys": "return heads_of(x @ p['wq'], x @ p['wk'], x @ p['wv'], n_heads) @ p['wo']",
    "words": "return heads_of(x @ p['query'], x @ p['key'], x @ p['value'], n_heads) @ p.get('output')",
    "nested": "a = p['attn']; return heads_of(x @ a['W_q'], x @ a['W_k'], x @ a['W_v'], n_heads) @ a['W_o']",
    "biases": "return heads_of(x @ p['wq'] + p['bq'], x @ p['wk'] + p['bk'], x @ p['wv'] + p['bv'], n_heads) @ p['wo']",
    "unpacked": "y = linear(x, **p['c_attn']); return linear(heads_of(*np.split(y, 3, -1), n_heads), **p['c_proj'])",
    "handed_on": "return project(heads_of(*np.split(project(x, p['qkv']), 3, -1), n_heads), p['proj'])",
    "transposed": "return heads_of(*np.split(x @ p['W_qkv'].T, 3, -1), n_heads) @ p['W_o'].T",
    "by_head": "return sum(attend(x @ q, x @ k, x @ v) @ o for q, k, v, o in zip(p['q'], p['k'], p['v'], p['out']))",
    "sizes": "h = p['n_heads']; return heads_of(x @ p['wq'], x @ p['wk'], x @ p['wv'], h) @ p['wo']",
}


@pytest.mark.parametrize("way", WAYS)
def test_weights_in_a_dict_are_graded(way: str, tmp_path: Path) -> None:
    body = WAYS[way].replace("; ", "\n    ")
    text = f"{ATTEND}\ndef attention(x, p, n_heads):\n    {body}\n"
    result = grade_text(text, "attention", tmp_path)
    assert result.verdict == "right" and "p." in result.detected["weights"], described(result)
    wrong = grade_text(text.replace("np.sqrt(q.shape[-1])", "q.shape[-1]"), "attention", tmp_path)
    assert [fault.id for fault in wrong.faults] == ["scale_d_head_unrooted"], described(wrong)


def test_two_dicts_that_are_unpacked(tmp_path: Path) -> None:
    text = f"{ATTEND}\ndef mha(x, c_attn, c_proj, n_head):\n    y = linear(x, **c_attn)\n"
    text = text.replace("b=None", "b")
    text += "    return linear(heads_of(*np.split(y, 3, -1), n_head), **c_proj)\n"
    result = grade_text(text, "mha", tmp_path)
    assert result.verdict == "right" and result.detected["bias"] == "yes", described(result)


def test_by_head_without_a_dict(tmp_path: Path) -> None:
    text = f"{ATTEND}\ndef attention(x, Wq, Wk, Wv, Wo):\n"
    text += "    y = [attend(x @ q, x @ k, x @ v) for q, k, v in zip(Wq, Wk, Wv)]; return np.hstack(y) @ Wo\n"
    result = grade_text(text, "attention", tmp_path)
    assert result.verdict == "right", described(result)


def test_a_key_of_unknown_meaning_is_reported(tmp_path: Path) -> None:
    text = f"{ATTEND}\ndef attention(x, p):\n    return attend(x @ p['banana'], x @ p['kiwi'], x)\n"
    result = grade_text(text, "attention", tmp_path)
    assert result.verdict == "uncallable" and len(result.tried) == 1
    assert "'banana'" in result.tried[0].text


def test_keys_are_read_through_names_and_calls() -> None:
    text = "def inner(x, a):\n    return a['deep'], inner(x, a)\n\ndef f(x, p, z):\n    one = p['one']\n"
    text += "    p['set'] = 3; return inner(x, one), p['two'][0], x[0]\n"
    assert keys_read(text, "f") == {"p": {"one": {"deep": {}}, "two": {}}}
    assert keys_read(text, "g") == {}
