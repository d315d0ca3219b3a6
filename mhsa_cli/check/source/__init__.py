"""From FILE:NAME to the object it names."""
