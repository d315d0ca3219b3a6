"""Find the variant of the reference that a block equals."""
