"""Tensors without data, at PyTorch's path. There are none: the device "meta" has its own."""
