"""What a command sets in motion: training, sweeps, grades, looking back. No pictures here, and no options."""
