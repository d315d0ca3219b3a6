"""The interactive page of a run, of two, or of a sweep: one HTML file with its data, style and script."""
