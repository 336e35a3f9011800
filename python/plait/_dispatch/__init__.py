"""Operations below functions, by PyTorch's inner names, which classes and modes take over by `__torch_dispatch__`.

A function that meets a tensor of such a class, or runs in such a mode, is lowered to operations (`lowering`); each asks
the mode and the classes (`operations`), or computes (`kernels`). Nothing of it is imported before the first of them.
"""
