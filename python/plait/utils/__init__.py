"""Data loading, checkpointing and other helpers."""
