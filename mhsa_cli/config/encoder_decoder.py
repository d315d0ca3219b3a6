"""Where the source of an encoder-decoder ends, and what is refused for one: its layers see different parts of a row."""

from __future__ import annotations

from mhsa_cli.errors import UsageError

CODE = "encoder-decoder"


def source_length(encoder_layers: int, seq_len: int) -> int:
    """Return the number of source positions in a row of `seq_len` tokens; 0 for a decoder alone."""
    return seq_len // 2 if encoder_layers else 0


def refuse_encoder_decoder(has_encoder: bool, what: str) -> None:
    """Refuse what is not defined where layers see different parts of a row. Raises: UsageError."""
    if has_encoder:
        message = f"{what} is for decoders alone, this model has an encoder (model.encoder_layers)"
        way = "maps, scores, labels and ablations are there: mhsa inspect-heads, mhsa explain"
        raise UsageError(message, way, CODE)
