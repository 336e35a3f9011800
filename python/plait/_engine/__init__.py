"""What lies below tensors: calls of the compiled module, their errors and arguments, callbacks, ranks."""
