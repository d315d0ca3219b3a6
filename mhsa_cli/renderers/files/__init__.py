"""How a picture becomes a file: SVG, PNG, HTML."""
