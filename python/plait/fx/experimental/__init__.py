"""Parts of fx that PyTorch calls experimental."""
