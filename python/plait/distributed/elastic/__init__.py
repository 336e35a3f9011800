"""What PyTorch's elastic launcher has for the scripts that it starts, under PyTorch's names."""
