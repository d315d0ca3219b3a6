"""Build and call a block whatever its interface."""
