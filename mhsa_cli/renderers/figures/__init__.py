"""Figures for papers, from records. All modules but `sheet_options` import matplotlib (the extra `plots`)."""
