"""Interleaved shards: a later dimension of the mesh divides rows first."""

import copy

import plait
import plait.distributed.checkpoint as dcp
import pytest
from plait import nn
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, strict, zeros
from plait.distributed.tensor._utils import compute_local_shape_and_global_offset
from plait.distributed.tensor.parallel import loss_parallel
from plait.distributed.tensor.placement_types import _StridedShard
from plait.nn import functional as F
from ranks import on_one_device as on_ranks

LATER_FIRST = (_StridedShard(0, split_factor=2), Shard(0))


def numbers(*shape):
    return plait.arange(float(plait.empty(shape).numel())).double().reshape(shape)


def rows(dtensor):
    """Returns the rows that this rank has of numbers(n, 1)."""
    return dtensor.to_local().flatten().int().tolist()


def test_the_placement():
    p = _StridedShard(0, split_factor=2)
    assert (p.dim, p.split_factor) == (0, 2)
    assert (repr(p), str(p)) == ("_StridedShard(dim=0, sf=2)", "_S(0, 2)")
    assert p == _StridedShard(0, sf=2) and hash(p) == hash(_StridedShard(0, sf=2))
    assert p not in (_StridedShard(0, split_factor=4), _StridedShard(1, split_factor=2), Shard(0))
    assert _StridedShard(0) != Shard(0) and _StridedShard(0).split_factor == 1
    assert not isinstance(p, Shard)
    assert not any((p.is_shard(), p.is_shard(0), p.is_replicate(), p.is_partial()))
    assert [str(q) for q in (Shard(1), Replicate(), Partial("max"))] == ["S(1)", "R", "P(max)"]
    assert copy.deepcopy(p) == p
    with pytest.raises(TypeError, match="both split_factor and sf"):
        _StridedShard(0, split_factor=2, sf=2)
    with pytest.raises(ValueError, match="split_factor of at least 1, got 0"):
        _StridedShard(0, split_factor=0)
    for wrong in ({"split_factor": 2.5}, {"sf": "2"}):
        with pytest.raises(TypeError):
            _StridedShard(0, **wrong)
    with pytest.raises(TypeError):
        _StridedShard(0.5)
    with pytest.raises(AttributeError):
        p.dim = 1


@pytest.mark.parametrize("n", [1, 3, 5, 8, 9])
@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 2)], ids=str)
def test_which_rows_ranks_have(shape, n):
    def fn(rank):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
        dp, tp = mesh.get_coordinate()
        x = numbers(n, 1)
        placed = (_StridedShard(-2, split_factor=shape[1]), Shard(-2))
        d = distribute_tensor(x, mesh, placed)
        assert d.placements == (_StridedShard(0, split_factor=shape[1]), Shard(0))
        parts = [*x.chunk(shape[1]), *[x[:0]] * shape[1]][tp]
        want = [*parts.chunk(shape[0]), *[x[:0]] * shape[0]][dp]
        assert plait.equal(d.to_local(), want) and plait.equal(d.full_tensor(), x)
        local, offset = compute_local_shape_and_global_offset(x.shape, mesh, d.placements)
        assert local == want.shape and offset == ((int(want[0]) if len(want) else n), 0)
        assert compute_local_shape_and_global_offset(x.shape, mesh, d.placements, skip_offset=True) == (local, ())
        again = DTensor.from_local(want, mesh, placed, shape=x.shape)
        assert plait.equal(again.full_tensor(), x)
        made = zeros(n, 1, device_mesh=mesh, placements=placed)
        assert made.to_local().shape == want.shape
        assert n == 1 or plait.zeros_like(d).placements == d.placements

    on_ranks(shape[0] * shape[1], fn)


def test_pieces_that_no_rank_divides():
    def fn(rank):
        mesh = init_device_mesh("cpu", (4,))
        d = distribute_tensor(numbers(9, 1), mesh, [_StridedShard(0, split_factor=2)])
        assert rows(d) == [[0, 1, 5], [2, 3, 6], [4, 7], [8]][rank]
        assert plait.equal(d.full_tensor(), numbers(9, 1))
        assert rows(d.redistribute(placements=[Shard(0)])) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], []][rank]
        assert distribute_tensor(numbers(9, 1), mesh, [_StridedShard(0)]).placements == (Shard(0),)
        with pytest.raises(IndexError, match="cannot shard dimension 2"):
            d.redistribute(placements=[_StridedShard(2, split_factor=2)])

    on_ranks(4, fn)


@pytest.mark.parametrize("factor", [9, 10, 2**40, 2**62, 2**63 - 1])
def test_more_pieces_than_rows(factor):
    def fn(rank):
        mesh = init_device_mesh("cpu", (4,))
        d = distribute_tensor(numbers(9, 4), mesh, [_StridedShard(0, split_factor=factor)])
        assert d.to_local().shape == (9 if rank == 0 else 0, 4)  # each piece has one row at most
        assert plait.equal(d.view(36).full_tensor(), numbers(36))
        assert plait.equal((d + d).redistribute(placements=[Shard(0)]).full_tensor(), numbers(9, 4) * 2)

    on_ranks(4, fn)


def test_views_of_parts_that_are_not_equally_long():
    x = numbers(6, 4).sin()

    def fn(rank, shape, *placed):
        mesh = init_device_mesh("cpu", shape)
        d = distribute_tensor(x, mesh, placed).requires_grad_()
        for y in (d.view(24), d.flatten(), d.reshape(2, 3, 4), d.unflatten(0, (3, 2))):
            assert plait.equal(y.full_tensor().flatten(), x.flatten())
            (grad,) = plait.autograd.grad((y * y).sum(), d)
            assert plait.allclose(grad.full_tensor(), x * 2)

    def interleaved(factor):
        return _StridedShard(0, split_factor=factor)

    on_ranks(6, fn, (2, 3), Shard(0), interleaved(2))
    on_ranks(6, fn, (3, 2), Shard(0), interleaved(3))
    on_ranks(6, fn, (2, 3), interleaved(3), interleaved(2))
    on_ranks(8, fn, (2, 2, 2), Shard(0), interleaved(2), Shard(0))


TARGETS = [
    (Replicate(), Replicate()),
    (Replicate(), Shard(0)),
    (Shard(0), Replicate()),
    (Shard(0), Shard(0)),
    (Shard(1), Shard(0)),
    (Shard(0), Shard(1)),
    (_StridedShard(0, split_factor=2), Replicate()),
    (Replicate(), _StridedShard(0, split_factor=3)),
    (_StridedShard(1, split_factor=2), Shard(1)),
    (Partial(), Replicate()),
]


def test_redistribute_and_gradients():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        x, w = numbers(7, 3), numbers(7, 3).cos()
        for to in TARGETS:
            d = distribute_tensor(x, mesh, LATER_FIRST).requires_grad_()
            y = d.redistribute(placements=to)
            assert y.placements == to and plait.equal(y.full_tensor(), x)
            (y * distribute_tensor(w, mesh)).sum().backward()
            assert d.grad.placements == LATER_FIRST
            assert plait.allclose(d.grad.full_tensor(), w)
            back = y.redistribute(placements=LATER_FIRST)
            assert plait.equal(back.to_local(), d.to_local())
            (full,) = plait.autograd.grad((back.full_tensor() * w).sum(), d)
            assert plait.allclose(full.full_tensor(), w)

    on_ranks(4, fn)


def test_ops_leave_rows_where_they_are():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        x, w = numbers(7, 4).sin(), numbers(4, 3).cos()
        d, e = distribute_tensor(x, mesh, LATER_FIRST), distribute_tensor(w, mesh)
        with strict():
            for got, want in (((d * 2 + d).exp(), (x * 2 + x).exp()), (d @ e, x @ w), (d.softmax(1), x.softmax(1))):
                assert got.placements == LATER_FIRST and plait.allclose(got.full_tensor(), want)
            assert d.t().placements == (_StridedShard(1, split_factor=2), Shard(1))
            assert d.norm().item() == pytest.approx(x.norm().item())
            assert plait.allclose(d.sum(0).full_tensor(), x.sum(0))
            for got, want in (  # the order of rows matters
                (d.cumsum(0), x.cumsum(0)),
                (d.argmax(0), x.argmax(0)),
                (d.flip(0), x.flip(0)),
                (plait.cat([d, d]), plait.cat([x, x])),
                (d.view(28), x.view(28)),
                (d[2:5], x[2:5]),
                (d + distribute_tensor(x, mesh, [Shard(0), Shard(0)]), x + x),
            ):
                assert plait.allclose(got.full_tensor(), want)
            d.mul_(2).add_(d)
            assert d.placements == LATER_FIRST and plait.allclose(d.full_tensor(), x * 4)

    on_ranks(4, fn)


def test_random_numbers_are_those_of_one_device():
    plait.manual_seed(3)
    want = plait.empty(7, 2).normal_()

    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        d = zeros(7, 2, device_mesh=mesh, placements=LATER_FIRST)
        plait.manual_seed(3)
        d.normal_()
        assert plait.equal(d.full_tensor(), want)

    on_ranks(4, fn)


def test_an_optimizer_and_clipping():
    x = numbers(7, 3).sin()

    def train(p):
        o = plait.optim.AdamW([p], lr=0.1)
        for _ in range(3):
            o.zero_grad()
            (p.sin() * p).sum().backward()
            norm = nn.utils.clip_grad_norm_([p], 0.5)
            o.step()
        return o, norm

    alone = x.clone().requires_grad_()
    _, want = train(alone)

    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        p = distribute_tensor(x, mesh, LATER_FIRST).requires_grad_()
        o, norm = train(p)
        assert norm.item() == pytest.approx(want.item())
        assert plait.allclose(p.full_tensor(), alone)
        state = o.state_dict()
        assert state["state"][0]["exp_avg"].placements == LATER_FIRST
        other = distribute_tensor(x, mesh, [Shard(0), Replicate()]).requires_grad_()
        moved = plait.optim.AdamW([other], lr=0.1)
        moved.load_state_dict(state)
        assert moved.state[other]["exp_avg"].placements == other.placements
        assert plait.equal(moved.state[other]["exp_avg"].full_tensor(), o.state[p]["exp_avg"].full_tensor())

    on_ranks(4, fn)


def test_checkpoints_load_in_other_placements(tmp_path):
    x, y = numbers(9, 4), numbers(5)
    path = str(tmp_path / "saved")
    meshes = [
        ((2, 2), LATER_FIRST),
        ((4,), [_StridedShard(0, split_factor=2)]),
        ((2, 3), (_StridedShard(0, split_factor=3), Shard(0))),
        ((3,), [Shard(0)]),
        ((2,), [Replicate()]),
    ]

    def save(rank, shape, placed):
        mesh = init_device_mesh("cpu", shape)
        dcp.save({"x": distribute_tensor(x, mesh, placed), "y": distribute_tensor(y, mesh, placed)}, checkpoint_id=path)

    def load(rank, shape, placed):
        mesh = init_device_mesh("cpu", shape)
        state = {
            k: zeros(*v.shape, dtype=v.dtype, device_mesh=mesh, placements=placed) for k, v in {"x": x, "y": y}.items()
        }
        dcp.load(state, checkpoint_id=path)
        assert plait.equal(state["x"].full_tensor(), x) and plait.equal(state["y"].full_tensor(), y)
        assert state["x"].placements == tuple(placed)

    for shape, placed in meshes[:3]:
        on_ranks(plait.empty(shape).numel(), save, shape, placed)
        for other, to in meshes:
            on_ranks(plait.empty(other).numel(), load, other, to)
        one = {"x": plait.zeros(9, 4).double(), "y": plait.zeros(5).double()}
        dcp.load(one, checkpoint_id=path)
        assert plait.equal(one["x"], x) and plait.equal(one["y"], y)


def test_losses():
    scores, target = numbers(6, 4).sin(), plait.tensor([0, 3, 1, 2, 3, 0])
    want = F.cross_entropy(scores, target)

    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        for placed in (
            LATER_FIRST,
            (_StridedShard(1, split_factor=2), Shard(1)),
            (_StridedShard(1, split_factor=2), Shard(0)),
        ):
            d = distribute_tensor(scores, mesh, placed).requires_grad_()
            loss = F.cross_entropy(d, distribute_tensor(target, mesh))
            assert loss.item() == pytest.approx(want.item())
            loss.backward()
            assert d.grad.placements == placed
        d = distribute_tensor(scores, mesh, [_StridedShard(0, split_factor=2), Shard(1)])
        whole = distribute_tensor(target, mesh)
        with loss_parallel():
            out = F.cross_entropy(d, whole, reduction="none")
            assert out.placements == (_StridedShard(0, split_factor=2), Replicate())
            with pytest.raises(ValueError, match="one dimension of the mesh divides along dimension 1"):
                F.cross_entropy(distribute_tensor(scores, mesh, [_StridedShard(1, split_factor=2), Replicate()]), whole)
            with pytest.raises(ValueError, match="an ordinary target beside scores placed"):
                F.cross_entropy(d, target)

    on_ranks(4, fn)


def test_printing_and_copies():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        d = distribute_tensor(numbers(8, 1), mesh, LATER_FIRST)
        assert repr(d).endswith("placements=(_StridedShard(dim=0, sf=2), Shard(dim=0)))")
        assert copy.deepcopy(d).placements == d.clone().placements == d.detach().placements == LATER_FIRST
        assert {LATER_FIRST: 1}[d.placements] == 1

    on_ranks(4, fn)
