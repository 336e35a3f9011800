"""Files: archives and pickles as PyTorch writes them."""
