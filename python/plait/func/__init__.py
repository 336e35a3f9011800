"""Functions made of functions: gradients, Jacobians, and calls for each part of a batch.

Arguments and results may be tensors in nested tuples, lists and dicts. `grad`, `vjp` and `jacrev` are made by backward
passes: those inside another transform, or of an argument that requires a gradient, are recorded themselves; gradients
flow back through the arguments, not through other tensors that the function refers to. `jvp` and `jacfwd` are made in
forward mode, together with the results.
"""

from plait._engine.missing_names import absent as _absent
from plait.func._batches import debug_unwrap, replace_all_batch_norm_modules_, stack_module_state, vmap
from plait.func._gradients import grad, grad_and_value, jvp, linearize, vjp
from plait.func._jacobians import hessian, jacfwd, jacrev
from plait.func._rearrange import rearrange
from plait.nn.utils.stateless import functional_call

__all__ = [
    "debug_unwrap",
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]


def __getattr__(name: str) -> object:
    raise _absent("func", "plait.func", name)
