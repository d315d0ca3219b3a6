"""Grade custom attention: infer how it is called, check the laws, and name its faults."""
