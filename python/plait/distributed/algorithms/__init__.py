"""Join for uneven batches, communication hooks, and activation checkpointing."""
