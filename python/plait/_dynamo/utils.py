"""What libraries ask about PyTorch's compiler."""

__all__ = ["is_compile_supported"]


def is_compile_supported(device_type: str) -> bool:
    """Returns False: there is no compiler."""
    return False
