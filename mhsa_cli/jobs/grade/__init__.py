"""Grade blocks in processes of their own."""
