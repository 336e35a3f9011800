"""What tensors are made of: values from and to other libraries, storages, indices, operators, text."""
