"""Equal elements, NaN and infinities of distributed tensors: values, indices and gradients are those of one device."""

import itertools

import numpy as np
import plait
import pytest
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from plait.distributed.tensor.placement_types import _StridedShard
from ranks import on_one_device as on_ranks

NAN, INF = float("nan"), float("inf")


def elements():
    """Returns matrices of few different elements, of which some ranks have no row or no column."""
    plait.manual_seed(0)
    for shape in ((5, 3), (2, 7), (1, 5)):
        few = plait.randint(0, 3, shape).double()
        yield few
        with_nan = few.clone()
        with_nan[-1, 0] = with_nan[0, -1] = NAN
        yield with_nan
        endless = few.clone()
        endless[0], endless[-1] = INF, -INF
        yield endless
    yield plait.ones(5, 3).double()
    yield plait.full((5, 3), NAN).double()
    yield plait.full((5, 3), -INF).double()
    yield plait.where(few > 1, -0.0, 0.0).double()


def along(*names):
    """Returns calls of methods along the first dimension, which goes, and the last one, which is kept."""
    for name, d in itertools.product(names, (0, -1)):
        yield f"{name} {d}", lambda x, name=name, d=d: getattr(x, name)(d, d < 0)


def every(*names):
    for name in names:
        yield name, lambda x, name=name: getattr(x, name)()


def ordered():
    for d, turned in itertools.product((0, 1), (False, True)):
        yield f"sort {d} {turned}", lambda x, d=d, turned=turned: x.sort(dim=d, descending=turned, stable=True)
        yield f"argsort {d} {turned}", lambda x, d=d, turned=turned: x.argsort(dim=d, descending=turned, stable=True)
        yield f"topk {d} {turned}", lambda x, d=d, turned=turned: x.topk(x.shape[d] // 2 + 1, d, turned)
        yield f"kthvalue {d}", lambda x, d=d: x.kthvalue(x.shape[d] // 2 + 1, d)
        for name in ("cummax", "cummin", "cumsum", "cumprod", "logcumsumexp", "softmax", "log_softmax", "prod"):
            yield f"{name} {d}", lambda x, name=name, d=d: getattr(x, name)(d)
        for p in (INF, -INF, 0, 1, 2):
            yield f"norm {p} {d}", lambda x, p=p, d=d: x.norm(p, d)
    yield "msort", plait.msort


ORDERS = {
    "of all": dict(every("max", "min", "median", "nanmedian", "amax", "amin", "argmax", "argmin", "aminmax", "prod")),
    "along": dict(along("max", "min", "median", "nanmedian", "mode")),
    "indices": dict(along("amax", "amin", "argmax", "argmin", "logsumexp")),
    "ordered": dict(ordered()),
    "pairs": {
        "maximum": lambda x: plait.maximum(x, x.flip(0)),
        "minimum": lambda x: plait.minimum(x, x.flip(1)),
        "fmax": lambda x: plait.fmax(x, x.flip(1)),
        "clamp": lambda x: x.clamp(0, 1),
        "amax of both": lambda x: x.amax((0, 1)),
        "unique": lambda x: plait.unique(x[x.isfinite()], return_inverse=True, return_counts=True),
    },
}
MESHES = {
    (2,): [[Shard(0)], [Shard(1)], [_StridedShard(0, split_factor=2)], [Partial()], [Partial("avg")]],
    (4,): [[Shard(0)], [Shard(1)]],
    (2, 2): [[Shard(0), Shard(0)], [Shard(0), Shard(1)], [Replicate(), Partial("avg")]],
}


def results(f, x):
    """Returns what a function makes of a tensor, and the gradient of a weighted sum of that."""
    x = x.detach().requires_grad_()
    made = f(x)
    made = [made] if isinstance(made, plait.Tensor) else list(made)
    grads = []
    if derived := [y for y in made if y.requires_grad]:
        weights = [(plait.arange(y.numel()).double() + 1).reshape(y.shape) for y in derived]
        if isinstance(x, DTensor):
            weights = [DTensor.from_local(w, x.device_mesh) for w in weights]
        grads = plait.autograd.grad(derived, x, weights)
    return [y.detach() for y in (*made, *grads)]


@pytest.mark.parametrize("kind", list(ORDERS))
@pytest.mark.parametrize("shape", list(MESHES))
def test_equal_elements(shape, kind):
    given = list(elements())
    want = [[results(f, x) for f in ORDERS[kind].values()] for x in given]

    def check(rank):
        mesh = init_device_mesh("cpu", shape)
        for places, (x, rows) in itertools.product(MESHES[shape], zip(given, want, strict=True)):
            if Partial() in places and not x.isfinite().all():
                continue  # zeros of other ranks are added
            for (name, f), row in zip(ORDERS[kind].items(), rows, strict=True):
                for got, expected in zip(results(f, distribute_tensor(x, mesh, places)), row, strict=True):
                    whole = got.full_tensor() if isinstance(got, DTensor) else got
                    assert whole.shape == expected.shape
                    assert whole.dtype == expected.dtype
                    what = f"{name} {places} {x.tolist()}"
                    np.testing.assert_allclose(
                        whole.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12, equal_nan=True, err_msg=what
                    )

    on_ranks(int(np.prod(shape)), check)


def test_largest_of_ranks():
    x = plait.tensor([[2.0, 0.0, 2.0], [2.0, NAN, 1.0], [0.0, 1.0, 1.0]])

    def check(rank):
        mesh = init_device_mesh("cpu", (2,))
        for name, f in (ORDERS["along"] | ORDERS["of all"] | ORDERS["indices"]).items():
            for op, other in (("max", -INF), ("min", INF)):
                d = DTensor.from_local(x if rank else plait.full_like(x, other), mesh, [Partial(op)])
                got, want = f(d), f(x)
                for g, w in zip(*([t] if isinstance(t, plait.Tensor) else t for t in (got, want)), strict=True):
                    np.testing.assert_allclose(g.full_tensor().numpy(), w.numpy(), rtol=1e-6, err_msg=f"{name} {op}")

    on_ranks(2, check)
