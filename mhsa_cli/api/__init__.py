"""The Python API: what `import mhsa_cli as mhsa` gives."""
