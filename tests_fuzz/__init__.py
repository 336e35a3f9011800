"""Random programs whose results are compared with PyTorch's, and abuse that must end in an error: `make fuzz`.

PyTorch is installed into an environment of its own under build/, and is used by nothing else here.
"""
