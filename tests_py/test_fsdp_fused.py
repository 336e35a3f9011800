"""FSDP of a layer that makes queries, keys and values, whose heads tensor parallelism divides."""

import copy
import tempfile

import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed import checkpoint as dcp
from plait.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.fsdp import fully_shard
from plait.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, gathered_bytes
from plait.distributed.tensor.placement_types import _StridedShard
from plait.nn import functional as F
from ranks import on_one_device as on_ranks

WIDTH, HEADS, LENGTH = 12, 6, 5


class Attention(nn.Module):
    """All three in one layer, and heads that are cut out of its output."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(seen.transpose(1, 2).flatten(2))


def divided(m, mesh):
    """Divides the heads over the ranks of a mesh."""
    for layer, name, place in (
        (m.qkv, "weight", _StridedShard(0, split_factor=3)),
        (m.qkv, "bias", _StridedShard(0, split_factor=3)),
        (m.proj, "weight", Shard(1)),
    ):
        setattr(layer, name, nn.Parameter(distribute_tensor(getattr(layer, name).detach(), mesh, [place])))
    return m


def batch(step):
    return plait.randn(6, LENGTH, WIDTH, generator=plait.Generator().manual_seed(step)).double()


def trained(m, steps, place=lambda x: x, parts=(0, 1)):
    opt = plait.optim.AdamW(m.parameters(), lr=0.02)
    for step in range(steps):
        opt.zero_grad()
        x = place(batch(step).chunk(parts[1])[parts[0]])
        (m(x) - x).square().mean().backward()
        nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        opt.step()
    return m


@pytest.mark.parametrize(("shape", "along"), [((2, 2), 0), ((3, 2), 0), ((2, 3), 0), ((2, 2), 1)])
def test_fused_layers_are_divided_and_sharded(shape, along):
    plait.manual_seed(0)
    start = Attention().double()
    alone = trained(copy.deepcopy(start), 3)
    want, folder = alone.state_dict(), tempfile.mkdtemp()

    def fn(rank):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
        m = divided(copy.deepcopy(start), mesh["tp"])
        fully_shard(m, mesh=mesh["dp"], shard_placement_fn=lambda p: Shard(along) if p.dim() > 1 else None)
        first = _StridedShard(0, split_factor=shape[1]) if along == 0 else Shard(1)
        assert m.qkv.weight.placements == (first, _StridedShard(0, split_factor=3))
        before = gathered_bytes()
        place = lambda x: distribute_tensor(x, mesh["tp"], [Replicate()])  # noqa: E731
        trained(m, 3, place, (mesh["dp"].get_local_rank(), shape[0]))
        assert gathered_bytes() == before  # heads are never gathered
        for name, p in m.state_dict().items():
            assert plait.allclose(p.full_tensor(), want[name], rtol=1e-9, atol=1e-11), name
        full = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))
        assert all(plait.allclose(full[name], want[name], rtol=1e-9, atol=1e-11) for name in want)
        dcp.save(m.state_dict(), checkpoint_id=folder)

    on_ranks(shape[0] * shape[1], fn)
    other = Attention().double()
    dcp.load(other.state_dict(), checkpoint_id=folder)
    assert all(plait.allclose(v, want[name], rtol=1e-9, atol=1e-11) for name, v in other.state_dict().items())

    def load(rank):
        mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("dp", "tp"))
        m = fully_shard(divided(Attention().double(), mesh["tp"]), mesh=mesh["dp"])
        dcp.load(m.state_dict(), checkpoint_id=folder)
        for name, p in m.state_dict().items():
            assert plait.allclose(p.full_tensor(), want[name], rtol=1e-9, atol=1e-11), name
        dist.barrier()

    on_ranks(6, load)


def test_pending_parameters_are_refused():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        m = nn.Linear(4, 4, bias=False)
        m.weight = nn.Parameter(distribute_tensor(m.weight.detach(), mesh["tp"], [Partial()]))
        with pytest.raises(ValueError, match="want Shard and Replicate"):
            fully_shard(m, mesh=mesh["dp"])

    on_ranks(4, fn)
