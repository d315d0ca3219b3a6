"""What crosses the walls between rooms: plain frozen data, no torch, no rich."""
