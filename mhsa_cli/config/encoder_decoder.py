"""What is refused for an encoder-decoder, whose layers see different parts of a row."""

from __future__ import annotations

from mhsa_cli.errors import UsageError

CODE = "encoder-decoder"


def refuse_encoder_decoder(encoder_layers: int, what: str) -> None:
    """Refuse what is not defined where layers see different parts of a row. Raises: UsageError."""
    if encoder_layers:
        message = f"{what} is for decoders alone; model.encoder_layers is {encoder_layers}"
        way = "maps, scores, labels and ablations are there: mhsa inspect-heads, mhsa explain"
        raise UsageError(message, way, CODE)
