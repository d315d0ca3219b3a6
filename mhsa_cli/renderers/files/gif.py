"""Pictures of the terminal one after the other, as an animated GIF drawn with Pillow (an extra)."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.text import Text

from mhsa_cli.records.thinning import evenly
from mhsa_cli.renderers.files.png import PANEL, SCALE, painted

COLOURS = 128  # more make the file larger, and no map clearer
SAMPLES = 5  # pictures from which the colours of all are chosen


def to_gif(pictures: Sequence[Sequence[Text]], seconds: Sequence[float]) -> bytes:
    """Draw pictures of lines, each shown for its seconds, over and over, at the size of `to_svg`'s.

    Raises: UsageError if Pillow is missing or a picture is too large; ValueError without pictures.
    """
    drawn = [painted(lines) for lines in pictures]
    from PIL import Image

    wide, high = (max(image.size[axis] for image in drawn) // SCALE for axis in (0, 1))
    frames = []
    for image in drawn:
        frame = Image.new("RGB", (wide, high), PANEL)
        frame.paste(image.reduce(SCALE))
        frames.append(frame)
    samples = evenly(frames, SAMPLES)
    sheet = Image.new("RGB", (wide, high * len(samples)))
    for number, frame in enumerate(samples):
        sheet.paste(frame, (0, number * high))
    palette = sheet.quantize(COLOURS)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=[round(s * 1000) for s in seconds], loop=0)
    return file.getvalue()
