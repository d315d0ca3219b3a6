"""Configs at the edges of what there is, written by hand: those that must train, and those that must be refused."""

from __future__ import annotations

# What a line does not say; a line's words take the place of these.
BASE = "name=shift vocab_size=7 seq_len=4 d_model=6 n_heads=3 batch_size=3 eval_sequences=5 epochs=2 steps_per_epoch=3"

# One training a line. `-> 3`: it must end with a number that is not finite; `-> 0/3`: with that or with none.
TRAINED = """
window=1
n_heads=1
n_heads=6
d_model=1 n_heads=1
d_model=1 n_heads=1 positions=learned norm=layernorm residual=true
d_model=1 n_heads=1 positions=none norm=rmsnorm d_mlp=1
d_model=1 n_heads=1 positions=alibi bias=false
d_model=2 n_heads=1 positions=rope
d_model=2 n_heads=2
d_model=5 n_heads=5 d_mlp=1 mlp=swiglu
d_model=7 n_heads=1
d_model=64 n_heads=64
d_model=64 n_heads=32 positions=rope
n_layers=7 n_heads=1
n_layers=4 residual=true norm=rmsnorm d_mlp=2 mlp=swiglu
name=repeat seq_len=1
name=shift seq_len=1
name=shift seq_len=1 positions=rope
name=shift seq_len=1 window=1
name=shift seq_len=1 attention=linear
name=shift seq_len=1 attention=uniform
name=shift seq_len=1 positions=alibi n_layers=2
name=repeat seq_len=2 vocab_size=2
name=shift seq_len=2 vocab_size=2
name=copy seq_len=2
name=copy seq_len=2 vocab_size=3
name=copy seq_len=2 vocab_size=4 min_length=1
name=copy seq_len=12 min_length=6
name=copy seq_len=12 min_length=1
name=reverse seq_len=2 vocab_size=3
name=reverse seq_len=6 vocab_size=4 min_length=3
name=reverse seq_len=8 min_length=1 attention=linear
name=induction seq_len=2
name=induction seq_len=2 vocab_size=2
name=induction seq_len=3 vocab_size=2 min_period=1 max_period=2
name=induction seq_len=5 min_period=4 max_period=4
name=induction seq_len=8 vocab_size=7 min_period=7 max_period=7
name=induction seq_len=9 min_period=1 max_period=1
name=repeat seq_len=33 window=32
name=shift seq_len=65 positions=learned
name=shift seq_len=48 n_layers=2 attention=linear
vocab_size=1000
vocab_size=2 batch_size=1 eval_sequences=1
batch_size=1
batch_size=1 seq_len=1 vocab_size=2 d_model=1 n_heads=1
batch_size=100
eval_sequences=1
eval_sequences=600
epochs=0
epochs=0 warmup_steps=1000000000
epochs=0 dtype=bfloat16 n_layers=3
epochs=0 schedule=cosine log_every=1 eval_every=1 save_every=1
epochs=1 steps_per_epoch=1
epochs=1 steps_per_epoch=1 schedule=cosine warmup_steps=1
epochs=1 steps_per_epoch=1 schedule=linear warmup_steps=0
epochs=7 steps_per_epoch=1 keep=1
epochs=1 steps_per_epoch=40
schedule=cosine warmup_steps=6
schedule=linear warmup_steps=6
schedule=cosine warmup_steps=5 grad_clip=1e-30
warmup_steps=1
dropout=0.999 residual=true norm=layernorm d_mlp=3
dropout=0.9999999999999999
dropout=1e-300
dropout=0.5 attention=linear positions=rope d_model=12
dropout=0.5 attention=uniform tie_embeddings=true
dropout=0.5 window=1 n_layers=2
dropout=0.5 n_heads=6 n_kv_heads=1 d_mlp=5 mlp=swiglu
grad_clip=5e-324
grad_clip=1e-20 dtype=bfloat16
grad_clip=1e9
grad_clip=1 weight_decay=0.1 dtype=float64
lr=5e-324
lr=1e-45
lr=1e-30 dtype=float64
lr=10000 -> 0/3
lr=10000 dtype=float64 -> 0/3
lr=10000 dtype=bfloat16 -> 0/3
lr=10000 grad_clip=1e-9 norm=layernorm -> 0/3
lr=10000 n_layers=20 residual=true d_mlp=64 epochs=9 -> 3
lr=10000 weight_decay=10000 -> 0/3
lr=10000 weight_decay=10000 epochs=20 dtype=bfloat16 -> 3
weight_decay=10000 -> 0/3
weight_decay=5e-324
betas=[0,0]
betas=[0,0.9999999999999999]
betas=[0.9999999999999999,0]
betas=[0.9999999999999999,0.9999999999999999] dtype=float64
betas=[0,0] dtype=bfloat16
window=1 n_layers=3 residual=true
window=2 positions=rope d_model=12
window=3 positions=alibi
window=4
window=5
window=65536
window=2 dtype=bfloat16
window=1 n_kv_heads=1
n_kv_heads=1
n_kv_heads=3
n_kv_heads=1 attention=linear
n_kv_heads=1 attention=uniform
n_heads=6 d_model=12 n_kv_heads=2 positions=rope
n_heads=6 d_model=12 n_kv_heads=3 positions=alibi window=2
n_heads=6 n_kv_heads=1 dtype=float64 norm=rmsnorm
positions=learned attention=linear norm=rmsnorm
positions=learned attention=uniform d_mlp=9
positions=learned mlp=swiglu d_mlp=1 residual=true
positions=sinusoidal attention=linear mlp=swiglu d_mlp=4
positions=sinusoidal attention=uniform norm=layernorm residual=true
positions=sinusoidal d_model=3 n_heads=3
positions=rope d_model=12 attention=linear norm=layernorm
positions=rope d_model=12 attention=uniform
positions=rope d_model=12 rope_layout=half
positions=rope d_model=6 rope_layout=half rope_theta=1.0000000000000002
positions=rope d_model=12 rope_theta=1e9 dtype=bfloat16
positions=rope d_model=6 max_seq_len=4096
positions=alibi attention=uniform
positions=alibi n_heads=1
positions=alibi n_heads=6 residual=true norm=rmsnorm
positions=alibi dtype=bfloat16 seq_len=40
positions=alibi dtype=float64 max_seq_len=5
positions=none
positions=none attention=uniform bias=false
positions=none attention=linear residual=true d_mlp=1
positions=none attention=linear dtype=float64 n_layers=2
positions=learned max_seq_len=4
positions=learned max_seq_len=4096 n_layers=2
positions=sinusoidal max_seq_len=2049 d_model=3 n_heads=1
mlp=swiglu d_mlp=0
d_mlp=1
d_mlp=1000 mlp=swiglu bias=false
d_mlp=3 norm=layernorm dtype=bfloat16 mlp=swiglu
norm=layernorm bias=false
norm=rmsnorm dtype=bfloat16 residual=true n_layers=4
residual=true tie_embeddings=true d_model=3
tie_embeddings=true vocab_size=2 bias=false dtype=float64
tie_embeddings=true norm=rmsnorm positions=learned dtype=bfloat16
dtype=float64 attention=linear
dtype=float64 attention=uniform positions=rope d_model=12
dtype=bfloat16
dtype=bfloat16 attention=linear positions=rope d_model=12
dtype=bfloat16 attention=uniform dropout=0.3
dtype=bfloat16 seq_len=1 vocab_size=2
threads=2
threads=3 n_layers=2 dtype=float64
seed=0
seed=9223372036854775807
seed=9223372036854775807 dropout=0.2 name=induction seq_len=6
save_every=1 keep=1
save_every=1 keep=1000000000
save_every=1000000000
save_every=5 keep=2 epochs=3
log_every=1
log_every=1000000000
log_every=4 eval_every=5 save_every=1
eval_every=1
eval_every=1000000000
device=cpu
"""

# `words | what must be named`: as above, but wrong; the key is the one that the error points at.
REFUSED = """
d_model=6 n_heads=4 | model.n_heads
d_model=5 n_heads=5 positions=rope | model.positions
d_model=1 n_heads=1 positions=rope | model.positions
d_model=9 n_heads=1 positions=rope attention=linear | model.positions
n_heads=12 | model.n_heads
n_kv_heads=2 | model.n_kv_heads
n_kv_heads=6 | model.n_kv_heads
n_kv_heads=-1 | model.n_kv_heads
attention=linear window=4 | model.window
attention=linear positions=alibi window=1 | model.positions
attention=Softmax | model.attention
attention=attn.py | model.attention
attention=.py:A | model.attention
attention=attn.txt:A | model.attention
attention=attn.py:A n_kv_heads=1 | model.attention
max_seq_len=3 | model.max_seq_len
max_seq_len=65537 | model.max_seq_len
seq_len=65537 | task.seq_len
window=65537 | model.window
window=-1 | model.window
rope_theta=0 | model.rope_theta
rope_theta=1.0 | model.rope_theta
rope_theta=1e10 | model.rope_theta
rope_layout=interleave_d | model.rope_layout
dropout=1 | model.dropout
dropout=-1e-300 | model.dropout
dropout=1e999 | model.dropout
d_mlp=-1 | model.d_mlp
d_mlp=1048577 | model.d_mlp
mlp=none | model.mlp
norm=null | model.norm
residual=null | model.residual
bias=0 | model.bias
tie_embeddings=1 | model.tie_embeddings
n_layers=0 | model.n_layers
n_layers=1.0 | model.n_layers
d_model=65537 | model.d_model
name=copy seq_len=3 | task.seq_len
name=reverse seq_len=1 | task.seq_len
name=copy vocab_size=3 min_length=1 | task.vocab_size
name=reverse min_length=3 | task.min_length
name=copy min_length=0 | task.min_length
name=copy max_period=2 | max_period
name=induction seq_len=1 | task.seq_len
name=induction vocab_size=2 seq_len=8 | task.vocab_size
name=induction min_period=3 max_period=2 | task.min_period
name=induction min_period=3 | task.min_period
name=induction max_period=4 | task.max_period
name=induction min_period=0 | task.min_period
name=induction vocab_size=3 seq_len=9 max_period=4 | task.vocab_size
name=shift min_length=2 | min_length
name=repeat path=a.txt | path
name=text path= | task.path
name=Copy | task.name
name=copy,reverse | task.name
vocab_size=1048577 | task.vocab_size
vocab_size=2.5 | task.vocab_size
warmup_steps=7 | train.warmup_steps
warmup_steps=1000000001 epochs=0 | train.warmup_steps
epochs=1000000001 steps_per_epoch=1 | train.epochs
epochs=1000000000 steps_per_epoch=2 | train.steps_per_epoch
steps_per_epoch=1000000001 | train.steps_per_epoch
batch_size=1048577 | train.batch_size
eval_sequences=1048577 | train.eval_sequences
lr=1e-400 | train.lr
lr=10000.000000000002 | train.lr
lr=-0 | train.lr
weight_decay=1e-400000x | train.weight_decay
weight_decay=1e5 | train.weight_decay
weight_decay=null | train.weight_decay
grad_clip=-1 | train.grad_clip
grad_clip=1e10 | train.grad_clip
grad_clip=1e-400 | train.grad_clip
betas=[1,0] | train.betas
betas=[0.5,1.0] | train.betas
betas=[-0.1,0.5] | train.betas
betas=[0.5,.inf] | train.betas
betas=[[0.5,0.5]] | train.betas
betas=[] | train.betas
betas=null | train.betas
seed=-0.5 | train.seed
seed=null | train.seed
seed=99999999999999999999 | train.seed
device=cuda:00 | train.device
device=cpu:0 | train.device
device=cuda: | train.device
dtype=Float32 | train.dtype
dtype=float8 | train.dtype
threads=1025 | train.threads
threads=-1 | train.threads
log_every=0.5 | train.log_every
save_every=-1 | train.save_every
eval_every=0 | train.eval_every
keep=null | train.keep
keep=1000000001 | train.keep
schedule=null | train.schedule
vocab_size=1048576 d_model=65536 n_heads=1 | model.d_model
seq_len=65536 n_layers=1000 | task.seq_len
max_seq_len=65536 | model.max_seq_len
max_seq_len=30000 n_layers=9 positions=learned | model.max_seq_len
batch_size=1048576 seq_len=4096 n_heads=1 attention=linear | train.batch_size
"""
