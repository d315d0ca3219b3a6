"""Pictures as files: SVG, HTML, PNG, text."""

ENDINGS = ("svg", "html", "png", "txt")  # the keys of `formats.RENDERERS`, for help that loads none of them
