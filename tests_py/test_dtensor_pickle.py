"""Distributed tensors in pickles and in files of `plait.save`: each rank has its own part."""

import copy
import io
import pickle
from typing import Any

import plait
import pytest
from plait.distributed.device_mesh import DeviceMesh, init_device_mesh
from plait.distributed.fsdp import FullyShardedDataParallel, fully_shard
from plait.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from ranks import on_ranks


def saved(value: Any) -> Any:
    """Saves and loads a value."""
    file = io.BytesIO()
    plait.save(value, file)
    file.seek(0)
    return plait.load(file)


def pickled(value: Any) -> Any:
    """Pickles a value."""
    return pickle.loads(pickle.dumps(value))


def test_every_placement() -> None:
    """Placements, meshes with and without names and their slices, dtypes, and gradients wanted stay as they were."""

    def work(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        whole = plait.arange(35, dtype=plait.float64).reshape(5, 7)
        for through in (saved, pickled, copy.copy):
            for placed in (
                [Shard(0), Shard(1)],
                [Replicate(), Shard(0)],
                [Shard(1), Shard(1)],
                [Replicate(), Replicate()],
            ):
                x = distribute_tensor(whole, mesh, placed).requires_grad_()
                y = through({"x": [x]})["x"][0]
                assert type(y) is DTensor
                assert (y.placements, y.device_mesh, y.shape, y.dtype) == (x.placements, mesh, x.shape, x.dtype)
                assert y.requires_grad
                assert plait.equal((x + y).full_tensor(), 2 * whole)
            part = distribute_tensor(whole, mesh["tp"], [Shard(1)])
            assert plait.equal((through(part) * part).full_tensor(), whole * whole)
            sums = DTensor.from_local(plait.ones(3), mesh["dp"], [Partial()])
            assert through(sums).placements == (Partial(),)
            assert plait.equal(through(sums).full_tensor(), plait.full((3,), 2.0))
            assert pickled(mesh) is mesh
            assert pickled(mesh["tp"]) == mesh["tp"]

    on_ranks(4, work)


def test_models() -> None:
    """States of a model and an optimiser that FSDP shards go on where they were."""

    def model() -> tuple[Any, Any]:
        plait.manual_seed(1)
        made = plait.nn.Sequential(plait.nn.Linear(5, 7), plait.nn.Linear(7, 3))
        fully_shard(made[0])
        fully_shard(made)
        return made, plait.optim.AdamW(made.parameters(), lr=0.1)

    def step(made: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        made(plait.ones(4, 5)).square().sum().backward()
        optimizer.step()

    def work(rank: int) -> None:
        first, its = model()
        step(first, its)
        state = saved({"model": first.state_dict(), "optimizer": its.state_dict()})
        second, other = model()
        second.load_state_dict(state["model"])
        other.load_state_dict(state["optimizer"])
        step(first, its)
        step(second, other)
        for a, b in zip(first.parameters(), second.parameters(), strict=True):
            assert plait.equal(a.full_tensor(), b.full_tensor())
        apart = plait.nn.Parameter(distribute_tensor(plait.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)]))
        for through in (saved, pickled):
            parameter = through(apart)
            assert isinstance(parameter, plait.nn.Parameter)
            assert isinstance(parameter, DTensor)
            assert parameter.requires_grad

    on_ranks(2, work)


def test_parameters_of_fsdp() -> None:
    """A rank saves its part of a sharded parameter, gathered or not; what it loads belongs to no unit."""

    def work(rank: int) -> None:
        plait.manual_seed(1)
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        made = plait.nn.Sequential(plait.nn.Linear(5, 7), plait.nn.Linear(7, 3), plait.nn.Linear(3, 1))
        made[1].weight.requires_grad = False
        for name, p in list(made.named_parameters()):
            placed = [Shard(0)] if name == "0.weight" else [Replicate()]
            divided = plait.nn.Parameter(distribute_tensor(p.detach(), mesh["tp"], placed), p.requires_grad)
            setattr(made.get_submodule(name[0]), name[2:], divided)
        want = [p.full_tensor() if isinstance(p, DTensor) else p.detach() for p in made.parameters()]
        fully_shard(made, mesh=mesh["dp"])
        made[0].bias.note = "kept"
        for gathered in (False, True):
            for through in (saved, pickled, copy.copy):
                if gathered:
                    made.unshard()
                parameters = through(list(made.parameters()))
                for p, its, whole in zip(parameters, made.parameters(), want, strict=True):
                    assert isinstance(p, plait.nn.Parameter)
                    assert isinstance(p, DTensor)
                    assert (p.placements, p.device_mesh, p.shape) == (its.placements, its.device_mesh, its.shape)
                    assert p.requires_grad == its.requires_grad
                    assert plait.equal(p.full_tensor(), whole)
                    assert pickled(p).placements == p.placements
                p = parameters[0]
                p.square().sum().backward()  # an ordinary parameter on its mesh, without a unit
                assert p.grad is not None
                assert p.grad.placements == p.placements
                assert through is saved or parameters[1].note == "kept"
        made(distribute_tensor(plait.ones(4, 5), mesh["tp"])).full_tensor().sum().backward()
        gradient = pickled(made[0].weight.grad)
        assert plait.equal(gradient.full_tensor(), made[0].weight.grad.full_tensor())

    on_ranks(4, work)


def test_parameters_that_are_copied() -> None:
    """Parameters of which every rank has a copy are ordinary ones in a file."""

    def work(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        made = plait.parallelize(plait.nn.Linear(5, 7), mesh)
        for through in (saved, pickled):
            p = through(made.weight)
            assert type(p) is plait.nn.Parameter
            assert plait.equal(p, made.weight.detach())

    on_ranks(2, work)


def test_parameters_that_are_summoned() -> None:
    """While FSDP shows whole parameters, a rank's part cannot be saved, and the error says what can."""

    def work(rank: int) -> None:
        made = FullyShardedDataParallel(plait.nn.Linear(5, 7))
        with FullyShardedDataParallel.summon_full_params(made):
            for through in (saved, pickled):
                with pytest.raises(RuntimeError, match=r"parameter .* is shown whole by summon_full_params"):
                    through(made.module.weight)
            assert pickled(made.module.weight.detach().clone()).shape == (7, 5)
        assert pickled(made.module.weight).placements == made.module.weight.placements

    on_ranks(2, work)
    on_ranks(1, work)


def test_meshes_that_are_not_there() -> None:
    """A file whose mesh the rank has not is refused, and says what to make; nobody waits."""
    files: dict[int, bytes] = {}

    def save(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        file = io.BytesIO()
        plait.save(distribute_tensor(plait.arange(8.0), mesh, [Shard(0), Replicate()]), file)
        files[rank] = file.getvalue()

    def load(rank: int) -> None:
        with pytest.raises(plait.CheckpointError, match=r"shape \(2, 2\) with the axes \('a', 'b'\).*init_device_mesh"):
            plait.load(io.BytesIO(files[rank]))
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        loaded = plait.load(io.BytesIO(files[rank]))
        assert isinstance(loaded.device_mesh, DeviceMesh)
        assert loaded.device_mesh == mesh
        assert plait.equal(loaded.full_tensor(), plait.arange(8.0))

    on_ranks(4, save)
    on_ranks(4, load)
