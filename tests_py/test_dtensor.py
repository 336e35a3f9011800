"""Distributed tensors: equal to one device."""

import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    ones,
    randn,
    strict,
    zeros,
)
from plait.distributed.tensor.experimental import implicit_replication
from plait.distributed.tensor.parallel import (
    ColwiseParallel,
    loss_parallel,
    parallelize_module,
)
from plait.nn import functional as F
from ranks import close
from ranks import on_one_device as on_ranks


def test_placements():
    assert (repr(Shard(1)), repr(Replicate()), repr(Partial())) == ("Shard(dim=1)", "Replicate()", "Partial(sum)")
    assert Shard(0) == Shard(0) != Shard(1)
    assert (
        Shard(0).is_shard() and Shard(0).is_shard(0) and not Shard(0).is_shard(1) and Partial("max").is_partial("max")
    )
    with pytest.raises(ValueError, match="Partial: want one of sum"):
        Partial("mean")


def test_distribute_redistribute_and_gather():
    def fn(rank):
        mesh = init_device_mesh("cpu", (3,))
        x = plait.arange(10).double()
        d = distribute_tensor(x, mesh, [Shard(0)])
        assert isinstance(d, DTensor) and d.shape == (10,) and d.placements == (Shard(0),) and d.device_mesh == mesh
        assert d.to_local().tolist() == x[4 * rank : 4 * rank + 4].tolist()
        close(d.full_tensor(), x)
        r = d.redistribute(placements=[Replicate()])
        assert r.placements == (Replicate(),) and r.to_local().shape == (10,)
        assert r.redistribute(placements=[Partial()]).full_tensor().tolist() == x.tolist()
        part = DTensor.from_local(plait.full((2,), float(rank)), mesh, [Partial()])
        assert part.full_tensor().tolist() == [3, 3]
        assert part.redistribute(placements=[Shard(0)]).to_local().tolist() == ([3] if rank < 2 else [])
        assert zeros(4, 5, device_mesh=mesh, placements=[Shard(1)]).to_local().shape == (4, 2 if rank < 2 else 1)
        assert ones(3, device_mesh=mesh).full_tensor().tolist() == [1, 1, 1]
        plait.manual_seed(5)
        drawn = randn(4, 4, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
        plait.manual_seed(5)
        close(drawn.double(), plait.randn(4, 4).double())
        assert "placements=(Shard(dim=0))" in repr(d)

    on_ranks(3, fn)


def test_mistakes_are_errors():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        d = distribute_tensor(plait.ones(4), mesh, [Shard(0)])
        with pytest.raises(IndexError, match="cannot shard dimension 3"):
            distribute_tensor(plait.ones(4), mesh, [Shard(3)])
        with pytest.raises(ValueError, match="2 placements for the 1 dimensions"):
            distribute_tensor(plait.ones(4), mesh, [Shard(0), Shard(0)])
        with pytest.raises(TypeError, match="input 1 is an ordinary tensor"):
            d + plait.ones(4)
        with pytest.raises(RuntimeError, match="distributed tensor with placements"):
            d.tolist()
        with pytest.raises((ValueError, RuntimeError), match="part of shape"):
            DTensor.from_local(plait.ones(3), mesh, [Shard(0)], shape=(4,))
        with strict(), pytest.raises(NotImplementedError, match=r"unique.*no rule"):
            plait.unique(d)
        with pytest.raises(ValueError, match=r"the plan names 'no\.such'"):
            parallelize_module(nn.Sequential(nn.Linear(2, 2)), mesh, {"no.such": ColwiseParallel()})
        with pytest.raises(ValueError, match="already, as"):
            distribute_tensor(d, mesh, [Replicate()])

    on_ranks(2, fn)


def test_a_rank_is_strict_by_itself():
    def fn(rank):
        d = distribute_tensor(plait.tensor([2.0, 1.0, 2.0]), init_device_mesh("cpu", (2,)), [Shard(0)])
        first = rank == 0
        for _ in range(1 - first):
            dist.barrier()
        with strict():
            for _ in range(2):
                dist.barrier()
            with pytest.raises(NotImplementedError, match="no rule"):
                plait.unique(d)
        for _ in range(first):
            dist.barrier()
        assert plait.unique(d).full_tensor().tolist() == [1, 2]  # the first rank came first and left first

    on_ranks(2, fn)


@pytest.mark.parametrize("combine", ["sum", "avg"])
def test_linear_operations_leave_results_pending(combine):
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        parts = [plait.arange(8.0).reshape(2, 4) * (r + 1) for r in range(2)]
        whole = (parts[0] + parts[1]) / (2 if combine == "avg" else 1)
        operations = [
            *(lambda x: x.clone(), lambda x: -x, lambda x: x * 2, lambda x: 2 * x, lambda x: x / 2, lambda x: x + x),
            *(
                lambda x: x.sum(0),
                lambda x: x.mean(0),
                lambda x: x.double(),
                lambda x: x.cumsum(1),
                lambda x: x.flip(0),
            ),
            *(lambda x: plait.cat([x, x]), lambda x: plait.stack([x, x]), lambda x: x.t(), lambda x: x.reshape(8)),
        ]
        for f in operations:
            x = DTensor.from_local(parts[rank].clone(), mesh, [Partial(combine)]).requires_grad_()
            one = whole.clone().requires_grad_()
            got, want = f(x), f(one)
            assert got.placements == (Partial(combine),)
            close(got.full_tensor(), want)
            (got * got).sum().backward()
            (want * want).sum().backward()
            close(x.grad.full_tensor(), one.grad)
        x = DTensor.from_local(parts[rank] / 4, mesh, [Partial(combine)])
        assert x.long().full_tensor().tolist() == (whole / 4).long().tolist()  # not linear
        w = distribute_tensor(plait.full((2, 4), 3.0), mesh, [Replicate()]).requires_grad_()
        (x * w).sum().backward()
        close(w.grad.full_tensor(), whole / 4)

    on_ranks(2, fn)


@pytest.mark.parametrize("index", [12, -3])
def test_a_wrong_index_of_a_divided_embedding(index):
    def fn(rank):
        mesh = init_device_mesh("cpu", (3,))
        for rows in (10, 2):  # of 2, the last rank has none
            weight = distribute_tensor(plait.randn(rows, 4), mesh, [Shard(0)])
            indices = distribute_tensor(plait.tensor([1, index, 0]), mesh, [Replicate()])
            message = f"index {index} at position 1 is out of range for dimension 0 of size {rows}"
            with pytest.raises(IndexError, match="embedding: " + message):
                F.embedding(indices, weight).full_tensor().tolist()
            assert float((plait.ones(3) * 2).sum()) == 6  # it was raised once
        x = distribute_tensor(plait.randn(3, 10), mesh, [Shard(1)])
        targets = distribute_tensor(plait.tensor([1, index, 0]), mesh, [Replicate()])
        with strict(), loss_parallel(), pytest.raises(IndexError, match=f"{index} at position 1 .* of size 10"):
            F.cross_entropy(x, targets).full_tensor().tolist()
        assert float((plait.ones(3) * 2).sum()) == 6

    on_ranks(3, fn)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda make: plait.linalg.vector_norm(make(plait.arange(8).reshape(2, 4))),
        lambda make: plait.linalg.vector_norm(make(plait.ones(2, 4)), ord=float("nan")),
        lambda make: F.embedding(plait.tensor([1, 0]), make(plait.ones(2, 4)), max_norm=-1.0),
    ],
    ids=["a norm of integers", "no order", "a negative norm"],
)
def test_wrong_arguments_are_refused_as_on_one_device(wrong):
    with pytest.raises((RuntimeError, TypeError, ValueError)) as one:
        wrong(lambda x: x)

    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        for placement in (Replicate(), Shard(0), Shard(1), Partial()):
            with implicit_replication(), pytest.raises(type(one.value)) as divided:
                wrong(lambda x, p=placement: distribute_tensor(x, mesh, [Replicate()]).redistribute(placements=[p]))
            assert str(divided.value).split("got")[0] == str(one.value).split("got")[0]

    on_ranks(2, fn)


def test_one_element():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        x = distribute_tensor(plait.arange(4.0), mesh, [Shard(0)])
        total = x.sum()
        assert total.item() == float(total) == 6 and int(total) == 6 and bool(total > 5) and f"{total:.1f}" == "6.0"
        assert distribute_tensor(plait.tensor([3]), mesh, [Shard(0)]).item() == 3  # which rank 0 has
        with pytest.raises((ValueError, RuntimeError), match="item"):
            x.item()

    on_ranks(2, fn)


def test_mesh_of_all_ranks_is_the_same():
    def fn(rank):
        a, b = ones(4, placements=[Shard(0)]), ones(4, placements=[Shard(0)])
        assert a.device_mesh == b.device_mesh
        assert (a + b).full_tensor().tolist() == [2] * 4

    on_ranks(2, fn)


def test_views_of_parts_that_moved_or_were_copied():
    x = plait.arange(12.0).reshape(3, 4)

    def fn(rank):
        mesh = init_device_mesh("cpu", (3,))
        for placed in (Replicate(), Shard(0), Shard(1)):
            d = distribute_tensor(x, mesh, [placed])
            assert plait.equal(d.redistribute(placements=[Replicate()]).view(12).full_tensor(), x.view(12))
            assert plait.equal(d.view(4, 3).full_tensor(), x.view(4, 3))
            assert d.is_contiguous() and d.contiguous() is d
            t = d.t().contiguous()
            assert t.is_contiguous() and t.to_local().is_contiguous() and plait.equal(t.full_tensor(), x.t())
            assert plait.equal(t.view(12).full_tensor(), x.t().reshape(12))
        assert not distribute_tensor(x, mesh).t().is_contiguous()
        summed = DTensor.from_local(x, mesh, [Partial()]).redistribute(placements=[Shard(1)])
        assert summed.to_local().is_contiguous() and plait.equal(summed.view(12).full_tensor(), x.view(12) * 3)

    on_ranks(3, fn)


@pytest.mark.parametrize("name", ["std", "var"])
def test_deviations_of_equal_elements_have_a_gradient(name):
    x = plait.tensor([[1.0, 2.0, 3.0], [1.0, 4.0, 8.0]]).double().requires_grad_()
    getattr(x, name)(0).sum().backward()

    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        d = distribute_tensor(x, mesh, [Shard(0)])
        getattr(d, name)(0).sum().backward()
        assert plait.allclose(d.grad.full_tensor(), x.grad)

    on_ranks(2, fn)


def test_second_derivatives_of_sums_with_pending_tensors():
    x, w, b = (plait.randn(*shape).double() for shape in ((4, 3), (3, 6), (6,)))

    def derive(inputs, seen):
        y = plait.addmm(inputs[2], inputs[0], inputs[1]) if seen is None else seen(inputs[0] @ inputs[1]) + inputs[2]
        first = plait.autograd.grad(y.sin().sum(), inputs, create_graph=True)
        return first, plait.autograd.grad(sum((g * g).sum() for g in first), inputs)

    want = derive([t.clone().requires_grad_() for t in (x, w, b)], None)

    def fn(rank):
        mesh = init_device_mesh("cpu", (3,))
        for combine in (None, "sum", "avg"):

            def seen(t, combine=combine):
                return t.redistribute(placements=[Partial(combine)])

            for n in range(8):
                placed = [Shard(0) if n >> i & 1 else Replicate() for i in range(3)]
                inputs = [
                    distribute_tensor(t, mesh, [p]).requires_grad_() for t, p in zip((x, w, b), placed, strict=True)
                ]
                got = derive(inputs, combine and seen)
                for gs, ws in zip(got, want, strict=True):
                    for g, v in zip(gs, ws, strict=True):
                        close(g.full_tensor().detach(), v.detach())

    on_ranks(3, fn)
