"""Ranks that are threads of several processes."""

import json
from pathlib import Path

import process_work
import pytest
from plait import distributed as dist
from ranks import on_ranks
from test_processes import check_no_process_is_left, kinds, run


def script(tmp_path, text, end="dist.spawn(work, nprocs=2)\n"):
    """Writes a script that runs a function, of which `text` is the body, on two ranks of each process."""
    path = tmp_path / "script.py"
    body = "".join(f"    {line}\n" for line in text.splitlines())
    path.write_text(
        "import os, sys, time\nimport plait as torch, plait.distributed as dist\n"
        "def say(*values): os.write(1, (' '.join(map(str, values)) + '\\n').encode())\n"
        "open(f'{sys.path[0]}/pid-{os.getpid()}', 'w').close()\n"
        f"def work(i):\n{body}\n"
        f"{end}"
    )
    return path


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_bits_are_those_of_threads_of_one_process(kind):
    code, out, err = run(kind, 2, [Path(process_work.__file__), 2])
    assert code == 0, err
    assert json.loads(out.strip().splitlines()[-1]) == on_ranks(4, process_work.everything)


@kinds
def test_numbers_groups_and_meshes(kind, tmp_path):
    path = script(
        tmp_path,
        "from plait.distributed.device_mesh import init_device_mesh\n"
        "first = int(os.environ['RANK']) * 2\n"
        "dist.init_process_group('gloo', rank=first + i, world_size=4)\n"
        "r = dist.get_rank()\n"
        "assert r == first + i and dist.get_node_local_rank() == r, (r, i)\n"
        "pair, cross = dist.new_group([0, 1]), dist.new_group([1, 2])\n"
        "mesh = init_device_mesh('cpu', (2, 2), mesh_dim_names=('node', 'local'))\n"
        "sums = []\n"
        "for group in (None, pair, cross, mesh.get_group('node'), mesh.get_group('local')):\n"
        "    x = torch.full((5,), float(2 ** r))\n"
        "    dist.all_reduce(x, group=group)\n"
        "    sums.append(int(x[0].item()))\n"
        "assert mesh.get_group('local').name() == 'local' and mesh.get_group('node').name() == 'mpi'\n"
        "say(r, *sums)\n"
        "dist.destroy_process_group()",
    )
    code, out, err = run(kind, 2, [path])
    assert code == 0, err
    assert sorted(out.splitlines()) == ["0 15 3 1 5 3", "1 15 3 6 10 3", "2 15 4 6 5 12", "3 15 8 8 10 12"]
    check_no_process_is_left(tmp_path)


@kinds
def test_worlds_follow_each_other(kind, tmp_path):
    path = script(
        tmp_path,
        "dist.init_process_group(world_size=2 if alone else -1)\n"
        "x = torch.ones(1)\n"
        "dist.all_reduce(x)\n"
        "say(int(x.item()), dist.get_world_size())",
        "dist.init_process_group()\n"
        "assert dist.get_world_size() == 2\n"
        "for alone in (False, True, False):\n"
        "    dist.spawn(work, nprocs=2)\n"
        "dist.all_reduce(x := torch.ones(1))\n"
        "say('own', int(x.item()))\n",
    )
    code, out, err = run(kind, 2, [path])
    assert code == 0, err
    assert sorted(out.splitlines()) == sorted(["4 4"] * 8 + ["2 2"] * 4 + ["own 2"] * 2)


@kinds
def test_rank_that_raises_is_named(kind, tmp_path):
    path = script(
        tmp_path,
        "dist.init_process_group()\nif dist.get_rank() == 3: raise ValueError('boom')\ndist.all_reduce(torch.ones(3))",
    )
    code, _, err = run(kind, 2, [path])
    assert code == 1
    assert "all_reduce #1: rank 3 is gone: it raised ValueError: boom" in err
    assert "raised on rank 1 of 2" in err
    check_no_process_is_left(tmp_path)


@kinds
def test_order_by_node(kind, tmp_path):
    path = script(
        tmp_path,
        "dist.init_process_group()\n"
        "values = [1e8, 1.0, -1e8, 1.0]\n"
        "for size in (3, 30_000):\n"
        "    x, y = (torch.full((size,), values[dist.get_rank()]) for _ in range(2))\n"
        "    dist.all_reduce(x)\n"
        "    dist.all_reduce([y], order='node')\n"
        "    say(x[-1].item(), y[-1].item())",
    )
    code, out, err = run(kind, 2, [path])
    assert code == 0, err
    assert out == "1.0 0.0\n" * 8


def test_order_of_threads_is_that_of_ranks():
    def work(rank):
        x = process_work.values(rank, 40_001, process_work.DTYPES[0])
        y = x.clone()
        dist.all_reduce(x)
        dist.all_reduce(y, order="node")
        with pytest.raises(ValueError, match='order: want "rank" or "node", got \'host\''):
            dist.all_reduce(y, order="host")
        return process_work.digest(x) == process_work.digest(y)

    assert on_ranks(3, work) == [True] * 3
