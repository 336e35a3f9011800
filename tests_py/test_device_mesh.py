"""Meshes of ranks."""

import pickle

import plait
import pytest
from plait import distributed as dist
from plait.distributed.device_mesh import DeviceMesh, init_device_mesh


def on_ranks(n, fn):
    """Runs fn(rank) on n ranks that share a device and returns what each returned."""
    results = [None] * n

    def run(rank):
        results[rank] = fn(rank)

    dist.spawn(run, nprocs=n, timeout=60, devices=["cpu:0"])
    return results


def total(group):
    """Returns the sum of the global ranks in a group, as the group adds them up."""
    x = plait.tensor([float(dist.get_rank())])
    dist.all_reduce(x, group=group)
    return int(x.item())


def test_mesh_of_all_ranks():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("dp", "tp"))
        row, column = divmod(rank, 3)
        assert dist.is_initialized()
        assert (mesh.ndim, mesh.shape, mesh.size(), mesh.size(0), mesh.size(1)) == (2, (2, 3), 6, 2, 3)
        assert mesh.mesh_dim_names == ("dp", "tp")
        assert mesh.device_type == "cpu"
        assert mesh.mesh.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert mesh.mesh.dtype is plait.int32
        assert repr(mesh) == "DeviceMesh((dp=2, tp=3), 'cpu', stride=(3, 1))"
        assert mesh.get_rank() == rank
        assert mesh.get_coordinate() == (row, column)
        assert (mesh.get_local_rank("dp"), mesh.get_local_rank(1), mesh.get_local_rank(-1)) == (row, column, column)
        assert dist.get_process_group_ranks(mesh.get_group("dp")) == [column, column + 3]
        assert mesh.get_group("dp") is mesh.get_group(0) is mesh["dp"].get_group()
        assert mesh.get_all_groups() == [mesh.get_group(0), mesh.get_group(1)]
        return total(mesh.get_group("dp")), total(mesh.get_group("tp"))

    assert on_ranks(6, fn) == [(2 * (r % 3) + 3, 9 * (r // 3) + 3) for r in range(6)]


def test_parts_of_a_mesh():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
        pp, dp, tp = rank // 4, rank // 2 % 2, rank % 2
        part = mesh["pp", "tp"]
        assert part.mesh.tolist() == [[2 * dp, 2 * dp + 1], [2 * dp + 4, 2 * dp + 5]]
        assert part.get_coordinate() == (pp, tp)
        assert part["tp"] == mesh["tp"]
        assert mesh["tp"] != mesh["pp"]
        assert len({mesh["tp"], part["tp"], mesh["dp"]}) == 2
        assert mesh["pp", "dp", "tp"] is mesh
        flat = part._flatten()
        assert flat.mesh_dim_names == ("pp_tp",)
        assert flat.mesh.tolist() == [2 * dp, 2 * dp + 1, 2 * dp + 4, 2 * dp + 5]
        assert flat.get_local_rank() == 2 * pp + tp
        assert mesh["pp_tp"].get_group() is flat.get_group() is mesh.get_group("pp_tp")
        assert dist.get_world_size(mesh._flatten("all").get_group()) == 8
        return total(flat.get_group())

    assert on_ranks(8, fn) == [8 * (r // 2 % 2) + 10 for r in range(8)]


def test_mesh_of_given_ranks():
    def fn(rank):
        ranks = [[3, 1], [0, 2]]
        mesh = DeviceMesh("cpu", ranks)
        kept = DeviceMesh("cpu", plait.tensor(ranks), preserve_rank_order=True)
        assert mesh.mesh_dim_names is None
        assert repr(mesh) == "DeviceMesh((2, 2), 'cpu', stride=(2, 1))"
        where = mesh.get_coordinate()
        if rank == 4:
            assert where is None
            with pytest.raises(RuntimeError, match="rank 4 is not in"):
                mesh.get_group(0)
            return
        assert mesh.mesh[where].item() == rank
        assert kept.get_local_rank(1) == where[1]
        assert mesh.get_local_rank(1) == sorted(ranks[where[0]]).index(rank)

    on_ranks(5, fn)


def test_mesh_from_groups():
    def fn(rank):
        made = init_device_mesh("cpu", (2, 2))
        one = DeviceMesh.from_group(made.get_group(1), "cpu", mesh_dim_names=("shard",))
        assert one.get_group("shard") is made.get_group(1)
        assert one.mesh.tolist() == [rank // 2 * 2, rank // 2 * 2 + 1]
        two = DeviceMesh.from_group(
            made.get_all_groups(), "cpu", [[0, 1], [2, 3]], mesh_dim_names=("replicate", "shard")
        )
        assert two["replicate"].get_group() is made.get_group(0)
        with pytest.raises(ValueError, match="mesh and mesh_dim_names are needed"):
            DeviceMesh.from_group(made.get_all_groups(), "cpu")
        with pytest.raises(ValueError, match="want a process group for each of the 2 axes, got 1"):
            DeviceMesh.from_group([made.get_group(0)], "cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "b"))
        with pytest.raises(ValueError, match="is not the group's ranks"):
            DeviceMesh.from_group(made.get_group(0), "cpu", [7, 8])

    on_ranks(4, fn)


def test_wrong_arguments_of_meshes():
    def fn(rank):
        with pytest.raises(RuntimeError, match="must be unique"):
            init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "dp"))
        with pytest.raises(RuntimeError, match="same length"):
            init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp",))
        with pytest.raises(RuntimeError, match="without an index"):
            init_device_mesh("cpu:0", (4,))
        with pytest.raises(ValueError, match="unknown type"):
            init_device_mesh("tpu", (4,))
        with pytest.raises(RuntimeError, match="8 places, more than the default world size 4"):
            init_device_mesh("cpu", (2, 4))
        with pytest.raises(ValueError, match="at least one rank"):
            init_device_mesh("cpu", (2, 0))
        with pytest.raises(ValueError, match="want different ones"):
            DeviceMesh("cpu", [0, 0])
        with pytest.raises(ValueError, match="integers"):
            DeviceMesh("cpu", [0.5, 1.0])
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
        assert mesh.device_type == "cuda" and "'cuda'" in repr(mesh)
        assert mesh == init_device_mesh("gpu", (2, 2), mesh_dim_names=("dp", "tp"))
        with pytest.raises(KeyError, match=r"no axis 'pp'|no axis \"pp\""):
            mesh["pp"]
        with pytest.raises(KeyError, match="not in the order of the mesh"):
            mesh["tp", "dp"]
        with pytest.raises(RuntimeError, match="mesh_dim is needed"):
            mesh.get_group()
        with pytest.raises(RuntimeError, match="mesh_dim is needed"):
            mesh.get_local_rank()
        with pytest.raises(IndexError, match="2 axes, got 5"):
            mesh.get_group(5)
        assert pickle.loads(pickle.dumps(mesh)) == mesh
        with pytest.raises(RuntimeError, match="no names to slice by"):
            init_device_mesh("cpu", (4,))["dp"]

    on_ranks(4, fn)


def test_ranks_that_want_different_meshes():
    def fn(rank):
        with pytest.raises(plait.DistributedError, match=rf"rank {1 - rank} wants"):
            init_device_mesh("cpu", (2, 1) if rank else (1, 2))

    on_ranks(2, fn)


def test_ddp_along_an_axis():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        linear = plait.nn.Linear(1, 1, bias=False)
        m = plait.nn.parallel.DistributedDataParallel(linear, device_mesh=mesh["dp"])
        m(plait.tensor([[float(rank)]])).sum().backward()
        with pytest.raises(RuntimeError, match="got both"):
            plait.nn.parallel.DistributedDataParallel(linear, device_mesh=mesh["dp"], process_group=mesh.get_group(0))
        with pytest.raises(RuntimeError, match="one axis"):
            plait.nn.parallel.DistributedDataParallel(linear, device_mesh=mesh)
        return linear.weight.grad.item()

    assert on_ranks(4, fn) == [1.0, 2.0, 1.0, 2.0]
