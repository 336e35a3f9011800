"""Distributed tensors in pickles and in files of `plait.save`: each rank has its own part."""

import copy
import io
import pickle
from typing import Any

import plait
import pytest
from plait.distributed.device_mesh import DeviceMesh, init_device_mesh
from plait.distributed.fsdp import fully_shard
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
