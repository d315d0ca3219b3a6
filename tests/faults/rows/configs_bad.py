"""Configs that must be refused, where, and what must be said: written by hand."""

from __future__ import annotations

from typing import NamedTuple

# `section.key: value | what must be said | ...`; `task/NAME.key` sets the task's name first.
VALUES = """
train.seed: -1 | found `-1` | from 0 to 2**63 - 1
train.seed: true | found `true` | a whole number
train.seed: 1.0 | found `1.0` | write 1
train.seed: '1' | found the text `1` | remove the quotes
train.seed: 9223372036854775808 | from 0 to 2**63 - 1
train.seed: 18446744073709551616 | from 0 to 2**63 - 1
train.seed: 010 | leading zero | write 10
train.seed: 0x20 | hexadecimal | write 32
train.seed: 0o10 | octal | write 8
train.seed: | nothing (null) | the default, 42
train.seed: ~ | nothing (null) | `train.seed`
train.seed: 1e3 | found `1e3` | write 1000
train.seed: .nan | found `.nan` | a whole number
train.seed: [7] | found a list of 1
train.seed: {a: 7} | found a mapping
train.seed: ${seed} | interpolation is not supported
train.seed: "7${x}" | interpolation is not supported
train.epochs: -3 | from 0 to 1,000,000,000
train.epochs: 3.0 | write 3
train.epochs: 2.5 | found `2.5`
train.epochs: 12:30 | found the text `12:30`
train.epochs: 1_000 | write 1000
train.epochs: 1000000000000000000000000000000 | a whole number of 31 digits
train.epochs: 4800ba | units such as `ba` are not supported
train.steps_per_epoch: 0 | from 1 to 1,000,000,000
train.steps_per_epoch: null | nothing (null) | the default, 120
train.batch_size: 0 | from 1 to 1,048,576
train.batch_size: auto | found the text `auto`
train.batch_size: 2097152 | from 1 to 1,048,576
train.lr: 0 | found `0` | above 0, at most 10,000
train.lr: -1e-3 | found `-1e-3`
train.lr: .nan | found `.nan` | a finite number
train.lr: .inf | found `.inf` | a finite number
train.lr: -.INF | found `-.INF` | a finite number
train.lr: 1e999 | found `1e999` | a finite number
train.lr: 1e5 | found `1e5` | at most 10,000
train.lr: fast | found the text `fast`
train.lr: 1,5 | found the text `1,5`
train.lr: 1e−3 | found the text `1e−3`
train.lr: true | found `true`
train.lr: '1e-3' | remove the quotes
train.lr: [1e-3, 1e-4] | found a list of 2
train.lr: 5% | units such as `%` are not supported
train.warmup_steps: -1 | from 0 to 1,000,000,000
train.warmup_steps: 0.1 | a fraction x epochs x steps_per_epoch
train.warmup_steps: 100ba | units such as `ba`
train.weight_decay: -0.1 | from 0, at most 10,000
train.betas: 0.9 | a list of two numbers in [0, 1)
train.betas: [0.9] | found a list of 1
train.betas: [0.9, 0.99, 0.999] | found a list of 3
train.betas: {beta1: 0.9} | found a mapping
train.grad_clip: 0 | above 0, at most 1,000,000,000, or null
train.grad_clip: none | found the text `none` | or null
train.device: gpu | found the text `gpu` | did you mean `cuda`?
train.device: cuda:-1 | one of auto, cpu, mps, cuda, cuda:N
train.device: CPU | found the text `CPU`
train.device: 0 | found the text `0`
train.dtype: float16 | use bfloat16
train.dtype: fp16 | use bfloat16
train.dtype: bf16 | did you mean `bfloat16`?
train.dtype: 32 | found `32` | one of float32, float64, bfloat16
train.schedule: cosin | did you mean `cosine`?
train.threads: 0 | from 1 to 1,024
train.log_every: 0 | or null
train.save_every: never | found the text `never`
train.eval_sequences: 0 | from 1 to 1,048,576
train.keep: 0 | from 1 to
model.d_model: 2147483648 | from 1 to 65,536
model.d_model: 0 | from 1 to 65,536
model.d_model: 32.5 | found `32.5`
model.d_model: 1,024 | write 1024
model.n_heads: four | found the text `four`
model.n_heads: 0 | from 1 to 65,536
model.n_heads: 999999999999999999999 | a whole number of 21 digits
model.n_layers: 1025 | from 1 to 1,024
model.d_mlp: 4x | units such as `x`
model.residual: yes | found the text `yes` | write `true`
model.residual: off | write `false`
model.residual: 1 | found `1` | true or false
model.bias: 'true' | found the text `true`
model.bias: null | nothing (null) | the default, true
model.tie_embeddings: y | write `true`
model.norm: batchnorm | one of none, layernorm, rmsnorm
model.positions: rotary | one of learned, sinusoidal, rope, alibi
model.positions: sin | did you mean `sinusoidal`?
model.attention: sofmax | did you mean `softmax`?
model.attention: attn.py:Class | found `attn.py:Class` | there is no such file
model.attention: attn | found the text `attn` | one of softmax, linear, uniform
model.mlp: silu | one of gelu, relu, swiglu
model.dropout: .nan | found `.nan`
model.dropout: 1.0 | from 0, below 1
model.dropout: -0.1 | from 0, below 1
model.rope_theta: 1 | above 1
model.window: 0 | or null
task.vocab_size: 1 | from 2 to 1,048,576
task.vocab_size: 0 | from 2 to 1,048,576
task.vocab_size: 1000000000000 | from 2 to 1,048,576
task.seq_len: 0 | from 1 to 65,536
task.seq_len: ${max_seq_len} | interpolation is not supported
task.name: no | found the text `no` | one of repeat, copy
task.name: 2024-13-45 | found the text `2024-13-45`
task.name: 2024-01-01 | found the text `2024-01-01`
task.name: revers | did you mean `reverse`?
task.name: [copy] | found a list of 1
task.name: 3 | found `3`
task/copy.seq_len: 1 | no target positions
task/reverse.seq_len: 9 | 8 and 10 are even
task/copy.vocab_size: 2 | wanted 3 or more
task/copy.min_length: 7 | wanted at most 6
task/induction.max_period: 24 | wanted at most 23
task/text.eval_fraction: 0.6 | above 0, at most 0.5 | `task.path` is missing
"""

# `section: key | what must be said`; `top` is no section at all. The alias comes before the likeness of letters.
KEYS = """
train: leraning_rate | did you mean `lr`?
train: learning_rate | did you mean `lr`?
train: optimizer.lr | did you mean `lr`?
train: max_iters | epochs x steps_per_epoch
train: num_train_epochs | did you mean `epochs`?
train: warmup_iters | did you mean `warmup_steps`?
train: warmup_ratio | fraction x epochs x steps_per_epoch
train: wandb_project | not supported
train: per_device_train_batch_size | did you mean `batch_size`?
train: gradient_accumulation_steps | batch size x accumulation steps
train: max_grad_norm | did you mean `grad_clip`?
train: wd | did you mean `weight_decay`?
train: beta2 | did you mean `betas: [beta1, beta2]`?
train: eval_interval | did you mean `eval_every`?
train: eval_iters | batches x batch size
train: save_steps | did you mean `save_every`?
train: save_total_limit | did you mean `keep`?
train: output_dir | command line
train: on | keys of `train`
train: Seed | did you mean `seed`?
train: fp16 | did you mean `dtype`?
model: n_embd | did you mean `d_model`?
model: hidden_size | did you mean `d_model`?
model: n_head | did you mean `n_heads`?
model: num_attention_heads | did you mean `n_heads`?
model: block_size | `task.seq_len` | `model.max_seq_len`
model: attn_pdrop | did you mean `dropout`?
model: n_positions | did you mean `max_seq_len`?
model: lr | `lr` belongs under `train:`
model: d-model | did you mean `d_model`?
model: zzz | keys of `model`: d_model
task: d_vocab | did you mean `vocab_size`?
task: context_length | did you mean `seq_len`?
task: path | it is a setting of `text`
top: n_heads | `n_heads` belongs under `model:`
top: Train | did you mean `train:`?
top: tokenizer | not supported
top: '[n_heads]' | unknown key `[n_heads]`
top: name | command line
"""

DEEP = "[" * 17 + "]" * 17
BOMB = "x0: &x0 [lol, lol]\n" + "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]\n" for i in range(1, 10))


class Text(NamedTuple):
    """A whole file, the place of its first fault (0: the file as a whole), and what must be said."""

    text: str | bytes
    line: int
    col: int
    said: tuple[str, ...]


# `\n` is a new line, so that one fault is one line here.
WHOLES = [
    Text("- 1\n- 2", 1, 1, ("found a list",)),
    Text("hello", 1, 1, ("found the text `hello`",)),
    Text("\n3", 2, 1, ("found the text `3`",)),
    Text("lr:1e-3", 1, 1, ("a space is needed after the colon",)),
    Text("train:\n  lr:1e-3", 2, 3, ("found the text `lr:1e-3`", "wanted a mapping")),
    Text("train: {}\n---\nmodel: {}", 2, 1, ("found a second document",)),
    Text("train:\n  lr: 1\n  seed: 3\n  lr: 2", 4, 3, ("`lr` a second time", "line 2")),
    Text("train: {lr: 1}\nmodel: {}\ntrain: {lr: 2}", 3, 1, ("`train` a second time", "line 1")),
    Text("model:\n\td_model: 8", 2, 1, ("found a tab",)),
    Text("train:\n  lr: 1\t# why", 2, 8, ("found a tab",)),
    Text("train:\n  lr: !!int foo", 2, 7, ("found the tag `!!int`",)),
    Text("train:\n  lr: !!bool foo", 2, 7, ("found the tag `!!bool`",)),
    Text("train:\n  lr: !!timestamp foo", 2, 7, ("found the tag `!!timestamp`",)),
    Text("train: !!python/object:os.system {}", 1, 8, ("found the tag `!!python/object:os.system`",)),
    Text("train: !ENV x", 1, 8, ("found the tag `!ENV`",)),
    Text("train:\n  seed: &a 3", 2, 9, ("found the anchor `&a`",)),
    Text("train:\n  seed: *a", 2, 9, ("found the alias `*a`",)),
    Text("train: &a [*a]", 1, 8, ("found the anchor `&a`", "found the alias `*a`")),
    Text(BOMB, 1, 5, ("anchors are not supported",)),
    Text("train:\n  <<: {lr: 3}", 2, 3, ("merging is not supported",)),
    Text("%YAML 1.1\n---\ntrain: {}", 1, 1, ("`%` directive",)),
    Text("train: {[lr]: 4}", 1, 9, ("as a key",)),
    Text('train:\n  "\\uD800": 1', 2, 3, (r"unknown key `\ud800` in `train`", "keys of `train`")),
    Text('"\\uDC80": {lr: 1}', 1, 1, (r"unknown key `\x80`", "sections are")),
    Text('task: {name: shift, "\\uD83D\\uDE00": [1]}', 1, 21, (r"has no setting `\ud83d\ude00`",)),
    Text("'': 3", 1, 1, ("found an empty key",)),
    Text("model: {_target_: a.b}", 1, 9, ("object creation are not supported",)),
    Text("train: {lr: 'open", 1, 18, ("is a quote or bracket left open?",)),
    Text("train: {lr: 1", 1, 14, ("is a bracket left open, or a comma missing?",)),
    Text("train:\n  lr: a: b", 2, 8, ("is there a second `: ` on this line",)),
    Text("train:\n  lr: @a", 2, 7, ("quote text that begins with this character",)),
    Text("train:\n   lr: 1\n  seed: 3", 3, 3, ("indentation",)),
    Text("train:\n  lr 1\n  seed: 3", 3, 7, ("is there a second `: `",)),
    Text("train: 3", 1, 8, ("`train`: found `3`, wanted a mapping",)),
    Text("task: copy", 1, 7, ("write `task: {name: ...}`",)),
    Text("model: [1, 2]", 1, 8, ("found a list of 2",)),
    Text("train: lr=3", 1, 8, ("found the text `lr=3`",)),
    Text("train: {betas: [0.5, .nan]}", 1, 22, ("`train.betas[1]`: found `.nan`",)),
    Text("train: {betas: [1, 0.5]}", 1, 17, ("`train.betas[0]`: found `1`",)),
    Text("train: {betas: [a, 0.5]}", 1, 17, ("`train.betas[0]`: found the text `a`",)),
    Text("train:\n  seed: " + "9" * 5000, 2, 9, ("a whole number of 5,000 digits",)),
    Text("x: " + DEEP, 1, 20, ("nested deeper than 16 levels",)),
    Text("".join(f"k{i}: 1\n" for i in range(1003)), 1000, 7, ("more than 1,000 values",)),
    Text("#" * (256 * 1024 + 1), 0, 0, ("larger than 256 kB",)),
    Text(b"# c\ntrain: {device: caf\xe9}", 2, 20, ("the byte 0xe9, which is not UTF-8",)),
    Text("train: {}".encode("utf-16"), 0, 0, ("UTF-16, wanted UTF-8",)),
    Text("train:\n  device: a\x00b", 2, 12, ("U+0000",)),
    Text("train:\n  device: \x1b[31mred", 2, 11, ("U+001B",)),
    Text("train: {}\n\ufeffmodel: {}", 2, 1, ("U+FEFF",)),
    Text("# a char model\nout_dir = 'out'\nn_layer = 6", 2, 1, ("this is Python or TOML", "not run")),
    Text("[training]\nsteps = 10", 2, 1, ("this is TOML",)),
    Text("import os\nos.system('id')", 1, 1, ("this is Python",)),
    Text("n_layer: 6\nn_head: 6\nn_embd: 384\nblock_size: 64\ndropout: 0.2\nbias: false", 1, 1,
         ("`n_layers` under `model:`", "`n_heads` under", "`d_model` under", "`task.seq_len`", "`dropout` belongs")),
    Text("optimizer:\n  lr: 2e-5\nseed: null\nmax_steps_per_epoch: null", 1, 1,
         ("inside it, `lr`: `lr` belongs under `train:`", "`seed` belongs under", "`steps_per_epoch` under")),
    Text("model:\n  name: mpt\n  d_model: 768\nmax_duration: 4800ba\nprecision: amp_bf16", 2, 3,
         ("`name`", "4800 batches", "`dtype` under `train:`")),
    Text("model:\n  d_model: 1600\n  n_heads: 48", 3, 12, ("nearest n_heads that divide 1600: 40 and 50",)),
    Text("model: {n_heads: 6, d_model: 36, n_kv_heads: 4}", 1, 46, ("n_kv_heads that divide 6: 1, 2, 3, 6",)),
    Text("model: {d_model: 9, n_heads: 3, positions: rope}", 1, 44, ("rotates pairs", "is odd")),
    Text("model: {positions: alibi, attention: linear}", 1, 38, ("adds to the scores of a softmax",)),
    Text("model: {attention: uniform, window: 3}", 1, 37, ("belongs to softmax",)),
    Text("task: {seq_len: 29}\nmodel: {max_seq_len: 15}", 2, 22, ("`task.seq_len` (29) or more",)),
    Text("train:\n  epochs: 3\n  steps_per_epoch: 7\n  warmup_steps: 22", 4, 17, ("wanted at most 21",)),
    Text("train: {steps_per_epoch: 100000, epochs: 100000}", 1, 26, ("10,000,000,000 steps",)),
    Text("train: {device: mps, dtype: float64}", 1, 29, ("mps has no float64",)),
    Text("model: {d_model: 65536, n_layers: 99}", 1, 18, ("the limit is 16.0 GiB", "lower `model.d_model`")),
    Text("task: {seq_len: 65536}\ntrain: {batch_size: 64}", 1, 17, ("for attention maps",)),
    Text("task: {name: text}", 1, 14, ("`task.path` is missing",)),
    Text("task: {name: text, path: ''}", 1, 26, ("found an empty text",)),
    Text("task: {name: copy, path: a}\ntrain: {lr: x}\nlr: 3", 1, 20,
         ("task `copy` has no setting `path`", "c.yaml:2:13", "c.yaml:3:1")),
]  # fmt: skip

OVERRIDES = """
train.lr=abc | found the text `abc` | above 0, at most 10,000
train.lr=1e5 | found `1e5`
n_heads=5 | nearest n_heads that divide 32: 4 and 8
n_head=5 | did you mean `n_heads` under `model:`?
lr=010 | leading zero
lr=.nan | found `.nan`
train=3 | is a section: set its keys one by one
seed= | nothing (null)
betas=[0.9,0.5 | is a bracket left open
device=&a | found the text `&a`
seed=&a | found the anchor
.lr=3 | write train.lr=3
seed=!!python/name:os.system | found the tag
=3 | wanted KEY=VALUE
train.\udcff=3 | unknown key `\\xff` in `train`
train.lr.x=3 | unknown key `lr.x` in `train`
lr=a: b | is there a second `: `
"""
