"""No argument is taken and ignored but for a reason that is said here."""

import ast
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import plait
import pytest

ROOT = Path(plait.__file__).parent

# Arguments that cannot change a result here, by name.
REASONS = {
    "memory_format": "tensors are row-major",
    "pin_memory": "memory is never pinned",
    "cudnn_enable": "there is no cuDNN",
    "cudnn_enabled": "there is no cuDNN",
    "driver": "there is one algorithm",
    "foreach": "there is one algorithm, which is fused",
    "assume_unique": "a hint for speed",
    "sparse_grad": "gradients are dense",
    "sparse": "gradients are dense",
    "sorted": "the result is sorted in any case",
    "vectorize": "a hint for speed",
    "outer_jacobian_strategy": "a hint for speed",
    "chunk_size": "a hint for memory",
    "abbreviated": "the table is short",
    "device_ids": "a rank has one device",
    "pg_options": "there is one backend, without options",
    "backend": "there is one backend",
    "backend_override": "there is one backend, without options",
    "group": "a divided model knows its groups",
    "tensor_contents": "contents are always those of the tensor",
    "check_layout": "there is one layout",
    "check_reduction": "reductions are always checked",
    "enable_nested_tensor": "there are no nested tensors",
    "mask_check": "there are no nested tensors",
    "pickle_protocol": "the format of files is fixed",
    "mmap": "a hint for speed",
    "framework": "there is one",
    "activities": "all kinds are recorded",
    "protocol": "objects reduce in one way",
}
# Others, by file, function and name, or * for all of a function's.
PLACES = {
    "_functions/conversion.py is_pinned device": REASONS["pin_memory"],
    "_functions/conversion.py pin_memory device": REASONS["pin_memory"],
    "_functions/config.py set_flush_denormal mode": "it returns False: denormal numbers cannot be flushed",
    "accelerator.py current_accelerator check_available": "it is always checked",
    "array_api/_types.py Info.default_dtypes device": "devices have the same dtypes",
    "array_api/_types.py Info.dtypes device": "devices have the same dtypes",
    "_modes.py no_grad.__init__ orig_func": "`__new__` takes it",
    "_dynamo/utils.py is_compile_supported device_type": "nothing is compiled on any",
    "distributed/tensor/_creation.py * layout": "there is one layout",
    "distributed/parallel/_module.py StagedLayout.* model": "its stages run",
    "distributed/tensor/parallel/_styles.py *._apply.*": "hooks get the module and its inputs",
    "fx/experimental/symbolic_shapes.py *": "sizes are numbers: nothing has to be asked",
    "fx/_symbolic_trace.py Tracer.getattr attr": "for derived classes",
    "fx/_symbolic_trace.py Tracer.is_leaf_module module_qualified_name": "for derived classes",
    "fx/graph*.py *.* shown": "choices of how a listing looks",
    "fx/interpreter.py *.*": "every kind of node gets a target, args and kwargs",
    "jit/__init__.py *": "nothing is compiled",
    "utils/tensorboard/writer.py SummaryWriter.add_pr_curve_raw weights": "the curve has been computed",
    "library.py *": "operations are kept for the process, and run as they are",
    "nn/utils/prune.py *.compute_mask t": "the mask does not depend on the values",
    "onnx/_export.py export dynamo": "there is one way",
    "onnx/_export.py export report": "errors say what is missing",
    "onnx/_export.py export optimize": "what runs the model does it",
    "onnx/_export.py export do_constant_folding": "what runs the model does it",
    "onnx/symbolic_helper.py parse_args arg_descriptors": "nothing is exported",
    "torch/_finder.py *": "importlib gives them",
    "utils/_pytree.py register_pytree_node *": "trees are not written to files",
    "utils/_pytree.py register_pytree_node.keys *": "a key may need neither",
    "autograd/gradcheck.py gradcheck check_grad_dtypes": "a gradient always has its tensor's dtype",
    "autograd/gradcheck.py gradcheck fast_mode": "a hint for speed",
    "autograd/gradcheck.py gradcheck masked": "there are no sparse tensors",
    "autograd/gradcheck.py gradgradcheck check_grad_dtypes": "a gradient always has its tensor's dtype",
    "autograd/gradcheck.py gradgradcheck check_undefined_grad": "a gradient that is not there counts as 0",
    "autograd/gradcheck.py gradgradcheck fast_mode": "a hint for speed",
    "autograd/gradcheck.py gradgradcheck gen_non_contig_grad_outputs": "gradients of any layout are tested elsewhere",
    "autograd/gradcheck.py gradgradcheck masked": "there are no sparse tensors",
    "compiler.py disable reason": "functions are not compiled",
    "compiler.py disable recursive": "functions are not compiled",
    "cuda/__init__.py is_bf16_supported including_emulation": "support and emulation are the same",
    "distributed/_collectives.py monitored_barrier wait_all_ranks": "the error names all missing ranks in any case",
    "distributed/_objects.py broadcast_object_list device": "objects stay in memory",
    "distributed/_objects.py recv_object_list device": "objects stay in memory",
    "distributed/_objects.py recv_object_list use_batch": "objects stay in memory",
    "distributed/_objects.py send_object_list device": "objects stay in memory",
    "distributed/_objects.py send_object_list use_batch": "objects stay in memory",
    "utils/data/_utils/pin_memory.py pin_memory device": REASONS["pin_memory"],
    "cuda/nccl.py is_available tensors": "no tensors go through NCCL",
    "distributed/checkpoint/filesystem.py async_save async_checkpointer_type": "ranks are threads",
    "distributed/fsdp/_states.py StateMethods.scatter_full_optim_state_dict optim": "parameters are found by name",
    "distributed/fsdp/_states.py StateMethods.scatter_full_optim_state_dict optim_input": "as above",
    "distributed/fsdp/_states.py StateMethods.shard_full_optim_state_dict args": "as above",
    "distributed/fsdp/wrap.py always_wrap_policy args": "it says yes to everything",
    "distributed/fsdp/wrap.py always_wrap_policy kwargs": "it says yes to everything",
    "distributed/fsdp/wrap.py lambda_auto_wrap_policy nonwrapped_numel": "it asks the function alone",
    "distributed/fsdp/wrap.py transformer_auto_wrap_policy nonwrapped_numel": "it asks for classes alone",
    "distributions/_transform_joins.py ReshapeTransform.log_abs_det_jacobian y": "x says it all",
    "distributions/transforms.py AffineTransform.log_abs_det_jacobian y": "x says it all",
    "distributions/transforms.py CumulativeDistributionTransform.log_abs_det_jacobian y": "x says it all",
    "distributions/transforms.py ExpTransform.log_abs_det_jacobian y": "x says it all",
    "distributions/transforms.py SigmoidTransform.log_abs_det_jacobian y": "x says it all",
    "distributions/transforms.py SoftplusTransform.log_abs_det_jacobian y": "x says it all",
    "distributions/transforms.py TanhTransform.log_abs_det_jacobian y": "x says it all",
    "_dispatch/layers.py embedding norm_type": "max_norm, which it belongs to, is refused",
    "_dispatch/shapes.py typed kwargs": "tensors stay where they are",
    "_engine/overriding.py disabled *": "it declines whatever it is asked",
    "_tensors/sparse_columns.py ColumnsTensor.to_sparse_cs? dense_dim": "elements are numbers",
    "utils/_python_dispatch.py is_in_torch_dispatch_mode include_infra_modes": "there are no others",
    "multiprocessing/__init__.py get_start_method allow_none": "the method is always known",
    "nn/attention.py sdpa_kernel set_priority": "there is one kernel",
    "nn/functional/fractional.py fractional_max_pool2d_with_indices return_indices": "they are always returned",
    "nn/functional/fractional.py fractional_max_pool3d_with_indices return_indices": "they are always returned",
    "nn/functional/pooling.py _pooling.adaptive_max_pool_with_indices return_indices": "they are always returned",
    "nn/functional/pooling.py _pooling.max_pool_with_indices return_indices": "they are always returned",
    "nn/modules/_backward.py BackwardHookFunction.backward ctx": "it keeps nothing from forward",
    "nn/modules/linear.py Identity.__init__ args": "it takes any, for the place of any module",
    "nn/modules/linear.py Identity.__init__ kwargs": "it takes any, for the place of any module",
    "profiler.py profile.__init__ *": "it is not collected, or not there to be set",
    "profiler.py record_function.__init__ args": "the name says it all",
    "_subclasses/fake_tensor.py is_fake x": "no tensor is one",
    "utils/data/_collate.py collate_*_fn collate_fn_map": "every such function is given it",
}


def functions(tree, stack=()):
    """Yields each function with the classes and functions that it stands in, itself last."""
    for node in ast.iter_child_nodes(tree):
        inner = stack
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*stack, node)
        if inner is not stack and not isinstance(node, ast.ClassDef):
            yield inner
        yield from functions(node, inner)


def does_nothing(node):
    """Whether the body only raises, or has no effect at all: then no argument can be expected to have one."""
    body = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    refuses = [n for n in body if isinstance(n, ast.Return) and ast.unparse(n) == "return engine_only()"]
    return not body or (len(body) == 1 and (isinstance(body[0], ast.Raise | ast.Pass) or bool(refuses)))


def is_private(node, last):
    protocol = node.name.startswith("__") and not isinstance(node, ast.ClassDef)
    if protocol:
        return node.name != "__init__"  # arguments of a protocol of Python's are not ours to choose
    return node.name[0] == "_" and (last or isinstance(node, ast.ClassDef))


def ignored(path):
    for stack in functions(ast.parse(path.read_text("utf-8"))):
        node = stack[-1]
        used = {n.id for part in node.body for n in ast.walk(part) if isinstance(n, ast.Name)}
        if does_nothing(node) or "locals" in used or any(is_private(n, n is node) for n in stack):
            continue
        said = "".join(ast.get_docstring(n) or "" for n in stack)
        a = node.args
        extra = [x for x in (a.vararg, a.kwarg) if x is not None]
        for arg in (x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, *extra)):
            documented = f"{arg}: has no effect" in said or f"{arg}: not needed" in said
            if arg not in used and arg not in ("self", "cls") and arg[0] != "_" and not documented:
                yield f"{path.relative_to(ROOT)} {'.'.join(n.name for n in stack)} {arg}", arg


def test_every_argument_is_used():
    found = {place for path in sorted(ROOT.rglob("*.py")) for place, arg in ignored(path) if arg not in REASONS}
    assert sorted(p for p in found if not any(fnmatchcase(p, known) for known in PLACES)) == []
    unneeded = [known for known in PLACES if not any(fnmatchcase(p, known) for p in found)]
    assert unneeded == [], "these are used, or gone"


A = np.array([[3.0, 0.0, 0.0], [0.0, -0.5, 0.0], [0.0, 0.0, 1e-3]])


def test_small_singular_values():
    a = plait.tensor(A)
    assert plait.linalg.pinv(a, atol=1e-2)[2, 2] == 0
    assert plait.linalg.pinv(a, atol=1.0).tolist() == plait.linalg.pinv(a, rtol=0.3).tolist()
    assert plait.linalg.pinv(a, atol=plait.tensor(1.0), hermitian=True).diagonal().tolist() == pytest.approx(
        [1 / 3, 0, 0]
    )
    np.testing.assert_allclose(plait.linalg.pinv(a, hermitian=True).numpy(), np.linalg.inv(A))
    both = plait.stack([a, a])
    assert plait.linalg.matrix_rank(both, atol=plait.tensor([1.0, 1e-2])).tolist() == [1, 2]
    assert plait.linalg.matrix_rank(plait.tril(a + 1), hermitian=True) == 3
    assert plait.linalg.matrix_rank(plait.zeros(2, 3, 0)).tolist() == [0, 0]
    assert plait.linalg.pinv(plait.zeros(3, 0), atol=1.0).shape == (0, 3)
    assert plait.linalg.lstsq(a, a, rcond=0.1).rank == 2


def test_singular_values_alone():
    u, s, v = plait.svd(plait.tensor(A[:2]), compute_uv=False)
    assert s.tolist() == [3.0, 0.5]
    assert u.tolist() == plait.zeros(2, 2).tolist() and v.tolist() == plait.zeros(3, 3).tolist()


def test_what_is_said_of_a_result_is_compared_with_it():
    x = plait.tensor([1, 2])
    assert x.repeat_interleave(plait.tensor([1, 2]), output_size=3).tolist() == [1, 2, 2]
    with pytest.raises(ValueError, match="output_size is 4"):
        x.repeat_interleave(plait.tensor([1, 2]), output_size=4)


def test_randomness_of_mapped_functions():
    x = plait.zeros(3)
    plait.manual_seed(1)
    same = plait.vmap(lambda v: v + plait.rand(()), randomness="same")(x)
    assert len(set(same.tolist())) == 1
    assert plait.rand(()) != same[0], "they count as drawn"
    assert len(set(plait.vmap(lambda v: v + plait.rand(()), randomness="different")(x).tolist())) == 3
    with pytest.raises(RuntimeError, match="draws random numbers"):
        plait.vmap(lambda v: v + plait.rand(()))(x)
    with pytest.raises(ValueError, match="randomness"):
        plait.vmap(plait.sin, randomness="some")


def test_strict_products():
    one = (plait.ones(2),)
    with pytest.raises(RuntimeError, match="depends on no argument"):
        plait.func.jvp(lambda x: plait.ones(2), one, one, strict=True)
    assert plait.func.jvp(lambda x: plait.ones(2), one, one)[1].tolist() == [0.0, 0.0]


def test_epochs_of_schedules():
    optimizer = plait.optim.SGD([plait.ones(1, requires_grad=True)], lr=0.1)
    schedule = plait.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    schedule.step(1.0, epoch=7)
    schedule.step(1.0)
    assert schedule.last_epoch == 8
    chained = plait.optim.lr_scheduler.ChainedScheduler([plait.optim.lr_scheduler.ConstantLR(optimizer)])
    with pytest.raises(TypeError):
        chained.step(3)
