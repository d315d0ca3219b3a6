"""Roles of weights, read from their names."""

from __future__ import annotations

import re


def role_of(path: str) -> str:
    """Read the role from a name: "qkv", "kv", "q", "k", "v", "out", or "" if the name has none."""
    for part in reversed(path.lower().split(".")):
        word = re.sub(r"[^a-z]", "", re.sub(r"(weight|bias|kernel|matrix|mat|param|layer|linear|lin)s?", "", part))
        word = re.sub(r"^(self|attn|attention)", "", word) or part
        if word in ("w", "b", "a", "t"):
            continue
        if re.search(r"qkv|kqv|vqk|qvk|kvq|vkq|cattn|inproj|toqkv", word):
            return "qkv"
        if "key" in word and "val" in word:
            return "qkv" if "quer" in word else "kv"
        if re.search(r"(^|[^a-z])kv|tokv|wkv|kvproj", word):
            return "kv"
        for role, name in (("q", "quer"), ("k", "key"), ("v", "val")):
            if name in word:
                return role
        for role in "qkv":
            if re.fullmatch(
                rf"(w|to|fc|proj|in|p|m|b|f|head|heads|all)?{role}s?(w|proj|projection|in|fc|net|s|p|b)?", word
            ):
                return role
        if re.search(
            r"out|^w?o(proj|s)?$|^(w|fc|to)o$|^c?proj|^fc$|final|unif|dense|merge|mix|combine|^fco|concat", word
        ):
            return "out"
    return ""


def is_bias(path: str) -> bool:
    """Whether a name is that of a bias, which may have an axis for the heads."""
    return bool(re.search(r"bias$|(^|[._])b_?(q|k|v|o|out|qkv)?$", path.rpartition(".")[2], re.IGNORECASE))
