"""What ranks do together in training."""
