"""Names of our settings in other projects: suggested in errors, never applied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mhsa_cli.config.spelling import near

# Our key -> its names elsewhere, in lower case with underscores.
ALIASES: dict[str, str] = {
    "task.name": "task dataset data builder dataset_name task_name",
    "task.vocab_size": "d_vocab n_vocab num_tokens v vocab vocabulary_size padded_vocab_size",
    "task.seq_len": "sequence_len seq_length sequence_length input_seq_len context_length context_len cutoff_len t",
    "task.path": "file data_path data_file text_file train_file input_file dataset_path",
    "task.eval_fraction": "val_fraction val_split test_split eval_split val_set_size",
    "model.d_model": "n_embd n_embed embed_dim emb_dim embedding_dim hidden_size hidden_dim model_dim dim width",
    "model.d_head": "d_heads head_dim head_size kv_channels",
    "model.n_heads": "n_head num_heads num_head nhead nheads heads num_attention_heads n_attention_heads",
    "model.n_kv_heads": "num_kv_heads n_kv_head num_key_value_heads kv_heads n_head_kv n_query_groups num_query_groups "
    "multi_query_group_num",
    "model.n_layers": "n_layer num_layers nlayers layers depth n_blocks num_blocks num_hidden_layers "
    "num_decoder_layers decoder_layers n_decoder_layers dec_layers",
    "model.encoder_layers": "num_encoder_layers n_encoder_layers enc_layers",
    "model.d_mlp": "d_ff dff ffn_dim ffn_hidden_size intermediate_size mlp_dim mlp_hidden_dim d_inner dim_feedforward",
    "model.mlp": "activation activation_function activation_fn act_fn hidden_act mlp_type ffn_type mlp_class_name",
    "model.residual": "residuals skip skip_connection skip_connections use_residual",
    "model.norm": "normalization norm_type layer_norm layernorm use_layer_norm",
    "model.positions": "position pos_encoding positional_encoding position_embedding_type pos_emb pos_embedding "
    "position_encoding positional_embedding rope rotary use_rope alibi use_alibi",
    "model.rope_theta": "rope_base rotary_base rotary_emb_base rope_freq_base",
    "model.rope_layout": "rope_style rope_interleaved rotary_interleaved",
    "model.attention": "attn attention_type attn_type attn_implementation",
    "model.causal": "is_causal causal_mask use_causal_mask is_decoder",
    "model.window": "sliding_window sliding_window_size window_size attention_window attn_window local_window",
    "model.bias": "use_bias qkv_bias attention_bias attn_bias",
    "model.dropout": "attn_pdrop resid_pdrop embd_pdrop attention_dropout hidden_dropout attn_dropout resid_dropout "
    "dropout_rate p_dropout dropout_p",
    "model.init_std": "initializer_range init_range init_method_std",
    "model.max_seq_len": "max_context_length max_position_embeddings max_seq_length n_ctx n_positions model_max_length "
    "max_length max_len",
    "model.tie_embeddings": "tie_word_embeddings weight_tying tie_weights tied_embeddings",
    "train.epochs": "max_epochs num_train_epochs num_epochs n_epochs epoch",
    "train.steps_per_epoch": "max_steps_per_epoch batches_per_epoch iters_per_epoch limit_train_batches",
    "train.batch_size": "micro_batch_size per_device_train_batch_size train_micro_batch_size_per_gpu global_batch_size "
    "global_train_batch_size train_batch_size bs batch",
    "train.lr": "learning_rate base_lr max_lr peak_lr",
    "train.schedule": "lr_scheduler_type lr_schedule lr_scheduler scheduler lr_decay_style",
    "train.warmup_steps": "warmup_iters lr_warmup_steps num_warmup_steps warmup t_warmup",
    "train.min_lr": "lr_min end_lr eta_min min_learning_rate",
    "train.weight_decay": "wd",
    "train.betas": "beta1 beta2 adam_beta1 adam_beta2 adam_betas",
    "train.eps": "adam_eps adam_epsilon epsilon",
    "train.grad_clip": "max_norm max_grad_norm gradient_clipping gradient_clip_val clip_grad_norm grad_norm_clip",
    "train.init": "init_from initial_weights pretrained_weights pretrained_path",
    "train.seed": "global_seed random_seed manual_seed",
    "train.device": "devices accelerator gpu",
    "train.dtype": "precision bf16 fp16 torch_dtype",
    "train.threads": "num_threads n_threads torch_threads",
    "train.log_every": "log_interval logging_steps log_freq log_every_n_steps log_steps",
    "train.eval_every": "eval_interval eval_steps eval_freq val_check_interval",
    "train.eval_sequences": "eval_samples num_eval_samples eval_size num_test_examples",
    "train.patience": "early_stopping_patience early_stop_patience stopping_patience",
    "train.save_every": "save_interval save_steps checkpoint_interval checkpoint_factor checkpoint_every",
    "train.keep": "save_total_limit keep_last_n_checkpoints save_top_k keep_latest_k keep_last",
}

_STEPS = "steps are epochs x steps_per_epoch: write `train.epochs` and `train.steps_per_epoch`"
_WARMUP = "warm-up is counted in steps: `train.warmup_steps` = fraction x epochs x steps_per_epoch"
_NAMING = "a run's name and folder are given on the command line, not in the config: see `mhsa train --help`"

# Advice on names without a key of ours. A trailing * stands for any ending.
SENTENCES: dict[str, str] = {
    "block_size": "`block_size` means two things: the length of a training row is `task.seq_len`, the reach of the "
    "positions is `model.max_seq_len`",
    "max_iters max_steps num_steps train_iters iterations num_iterations total_steps steps n_steps iters train_steps "
    "training_steps": _STEPS,
    "max_duration": "duration is counted in epochs and steps, without units (4800ba is 4800 batches, which are steps): "
    "write `train.epochs` and `train.steps_per_epoch`",
    "lr_decay_iters lr_decay_steps decay_steps": "the schedule always spans the whole run: remove it",
    "warmup_ratio warmup_fraction warmup_percent": _WARMUP,
    "alpha_f": "`alpha_f` is a ratio: `train.min_lr` = alpha_f x lr",
    "accum_steps gradient_accumulation_steps grad_accum accumulate_grad_batches": "gradients are not accumulated: "
    "`train.batch_size` = batch size x accumulation steps",
    "early_stopping early_stop target_accuracy target_loss": "write `train.stop_at`: accuracy=0.99 or loss=0.1, or "
    "`train.patience`",
    "eval_batches eval_iters limit_val_batches": "evaluation is counted in rows: `train.eval_sequences` = batches x "
    "batch size",
    "num_train_examples train_examples": "data is drawn when needed: `train.steps_per_epoch` = examples / batch_size",
    "expand mlp_ratio expansion_ratio ffn_mult": "`model.d_mlp` is the hidden width itself: ratio x d_model",
    "optimizer optim optimizer_type": "the optimiser is Adam (AdamW with `train.weight_decay`): write `train.lr`, "
    "`train.betas`, `train.weight_decay`",
    "rope_scaling rope_type": "rope's angles are not scaled: `model.rope_theta` is their base",
    "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps": "norms always add 1e-5: remove it",
    "name run_name run_id exp_name experiment_name wandb_run_name out_dir output_dir work_dir save_dir dump_folder "
    "save_folder default_root_dir overwrite_output_dir": _NAMING,
    "wandb_* deepspeed* lora_* tokenizer* zero_* fsdp* num_workers compile ddp_* hub_* report_to "
    "always_save_checkpoint": "not supported: remove it",
    "_component_ _target_": "interpolation and object creation are not supported: remove it",
}

# Sections of other projects that do not change the meaning of a name, as `eval` does in `eval.batch_size`.
PLAIN_SECTIONS = frozenset({
    "task", "model", "train", "data", "dataset", "system", "trainer", "training", "train_config", "training_args",
    "training_arguments", "model_config", "model_args", "transformer", "gpt", "network", "optimizer", "optimiser",
    "optim", "optimizer_config", "scheduler", "lr_scheduler", "config", "args", "params", "hparams",
    "hyperparameters", "experiment", "general", "common", "global", "settings",
})  # fmt: skip
LONG_ALIAS = 6  # letters of the shortest alias that is recognised with one letter wrong

SECTIONS = "sections are `task`, `model` and `train`; each setting belongs under one of them"

_BY_ALIAS = {alias: key for key, names in ALIASES.items() for alias in names.split()}
_SENTENCES = [(name, sentence) for names, sentence in SENTENCES.items() for name in names.split()]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The hint about an unknown key: a "key" of ours, "advice", or a list, of the section's "keys" or of "sections"."""

    kind: Literal["key", "advice", "keys", "sections"]
    text: str


def normalise(key: str) -> str:
    """Return the last part of a key in lower case, with `_` for `-`."""
    return _whole(key).rpartition(".")[2]


def _whole(key: str) -> str:
    return key.strip().lower().replace("-", "_")


def setting(key: str, keys: Iterable[str]) -> str | None:
    """Return our dotted key of this name, in any spelling, or with this alias; None if there is none."""
    known = {dotted.rpartition(".")[2]: dotted for dotted in keys}
    name = normalise(key)
    ours = known.get(name, _BY_ALIAS.get(name))
    return ours if ours in known.values() else None


def suggest(key: str, section: str, keys: Iterable[str], value: Any = None) -> Suggestion:
    """Return the hint about an unknown `key`, found in `section` ("" = top); `keys` are all dotted keys.

    In this order: the key in another section or spelling, its alias, advice, a slip of one letter, the list of keys.
    A section of other projects belongs to the name: `eval.interval` is `eval_interval`.
    """
    known = {dotted.rpartition(".")[2]: dotted for dotted in keys}
    name, outer = normalise(key), _whole(key).rpartition(".")[0].rpartition(".")[2]
    joined = f"{outer}_{name}"
    means = joined in known or _BY_ALIAS.get(joined) in known.values() or sentence_for(joined) is not None
    if outer and (means or outer not in PLAIN_SECTIONS):
        name = joined
    if name in ("task", "model", "train"):
        inside = f"`{name}:` is a section: write it without indentation"
        return Suggestion("advice", inside if section else f"did you mean `{name}:`?")
    if name in known and not (name == "name" and section != "task"):
        home = known[name].rpartition(".")[0]
        return Suggestion("key", f"did you mean `{name}`?" if home == section else f"`{name}` belongs under `{home}:`")
    if name in ("warmup", "t_warmup") and isinstance(value, float):
        return Suggestion("advice", _WARMUP)
    if name in ("warmup", "t_warmup") and isinstance(value, str) and re.match(r"\d", value):
        return Suggestion("advice", "write `train.warmup_steps` as a number of steps, without a unit")
    if (ours := _BY_ALIAS.get(name)) in known.values():
        extra = ": [beta1, beta2]" if ours == "train.betas" and name != "adam_betas" else ""
        return Suggestion("key", _did_you_mean(str(ours), section, extra))
    if sentence := sentence_for(name):
        return Suggestion("advice", sentence)
    # Aliases count, so that a misspelt `leraning_rate` leads to `lr`; two meanings give no suggestion.
    meant = {known[close] for close in near(name, known)}
    meant |= {_BY_ALIAS[close] for close in near(name, _BY_ALIAS, LONG_ALIAS)} & set(known.values())
    if len(meant) == 1:
        return Suggestion("key", _did_you_mean(meant.pop(), section))
    found = [dotted for dotted in keys if dotted.startswith(section + ".")]
    return Suggestion("keys", list_keys(found)) if found else Suggestion("sections", SECTIONS)


def list_keys(keys: Sequence[str]) -> str:
    """List the keys, one line per section."""
    names: dict[str, list[str]] = {}
    for dotted in keys:
        names.setdefault(dotted.partition(".")[0], []).append(dotted.partition(".")[2])
    return "\n".join(f"keys of `{section}`: {', '.join(found)}" for section, found in names.items())


def _did_you_mean(dotted: str, section: str, extra: str = "") -> str:
    home, _, name = dotted.rpartition(".")
    return f"did you mean `{name}{extra}`?" if home == section else f"did you mean `{name}{extra}` under `{home}:`?"


def sentence_for(name: str) -> str | None:
    """Return the advice on a name that has no key of ours."""
    for pattern, sentence in _SENTENCES:
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
            return sentence
    return None
