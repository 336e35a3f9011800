"""The device without values: shapes and graphs there, values later, whole or as a rank's rows."""

import math

import numpy as np
import plait
import plait.distributed as dist
import pytest
from plait import nn
from plait.distributed import fsdp
from plait.distributed.fsdp import FSDP, fully_shard
from plait.nn.utils import materialize
from ranks import on_ranks


class Attention(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.attend = nn.MultiheadAttention(wide, 2, batch_first=True)
        self.norm = nn.LayerNorm(wide)
        self.gain = nn.Parameter(plait.full((), 1.25))
        self.register_buffer("scale", plait.arange(wide) / wide + plait.rand(wide))

    def forward(self, x):
        y = self.norm(x) * self.scale
        return x + self.attend(y, y, y, need_weights=False)[0] * self.gain


class Model(nn.Module):
    """Initialisers of several kinds: the layers' own, a second draw over them, a row of zeros, products."""

    def __init__(self, wide=8):
        super().__init__()
        self.embed = nn.Embedding(11, wide, padding_idx=3)
        self.blocks = nn.ModuleList(Attention(wide) for _ in range(2))
        self.fold = nn.Parameter(plait.randn(5, wide) * 0.02 + 1)
        self.head = nn.Linear(wide, 3)
        self.apply(self.begin)

    def begin(self, m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
        elif isinstance(m, nn.LayerNorm):
            m.weight.data.uniform_(0.5, 1.5)

    def forward(self, x):
        x = self.embed(x)
        for b in self.blocks:
            x = b(x)
        return self.head(x * self.fold.mean())


def made(on=None):
    plait.manual_seed(5)
    plait.rand(3)
    if on is None:
        return Model()
    with plait.device(on):
        return Model()


def values(m):
    return {n: v.detach().numpy() for n, v in m.state_dict().items()}


def same(got, want):
    assert got.keys() == want.keys()
    for n in want:
        assert (got[n] == want[n]).all(), n


def test_shapes_without_values():
    with plait.device("meta"):
        m = Model()
        out = m(plait.zeros(2, 4, dtype=plait.int64))
    assert out.shape == (2, 4, 3) and out.is_meta and str(out.device) == "meta"
    out.sum().backward()
    assert m.head.weight.grad.shape == (3, 8)
    assert repr(m.fold.detach()) == "tensor(..., size=(5, 8), device='meta')"
    for read in (out.sum().item, out.tolist, out.numpy, lambda: out.to("cpu"), m.cpu):
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
            read()
    assert {v.device.type for v in m.to_empty(device="cpu").state_dict().values()} == {"cpu"}


def test_materialize_makes_the_same_bits():
    want = made()
    after = plait.rand(1).item()
    m = made("meta")
    assert plait.rand(1).item() == after  # the sequence has moved as far
    assert materialize(m) is m
    same(values(m), values(want))
    x = plait.arange(4)[None]
    assert (m(x).detach().numpy() == want(x).detach().numpy()).all()
    with pytest.raises(ValueError, match="cannot be repeated"):
        materialize(nn.Linear(600, 600).to("meta"))


def blocks(m):
    for b in m.blocks:
        fully_shard(b)
    return fully_shard(m)


def reset(m):
    m.to_empty(device="cpu", recurse=False)
    if hasattr(m, "reset_parameters"):
        m.reset_parameters()


WAYS = {
    "fully_shard": blocks,
    "FSDP": lambda m: FSDP(m, auto_wrap_policy={Attention}),
    "NO_SHARD": lambda m: FSDP(m, sharding_strategy=fsdp.ShardingStrategy.NO_SHARD),
    "from rank 0": lambda m: FSDP(m, auto_wrap_policy={Attention}, sync_module_states=True),
    "ignored": lambda m: FSDP(m, ignored_modules=[m.head]),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_rank_makes_its_rows(way):
    want = values(made())

    def run(rank):
        m = WAYS[way](made("meta"))
        with FSDP.summon_full_params(m):
            same(values(m), want)
        assert not any(t.is_meta for t in (*m.parameters(), *m.buffers()))
        opt = plait.optim.AdamW(m.parameters())
        m(plait.arange(4)[None]).square().mean().backward()
        opt.step()

    on_ranks(3, run)


def test_no_rank_holds_the_whole():
    def run(rank):
        with plait.device("meta"):
            m = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6)))
        before = plait.memory_stats(rank=rank)["current"]
        plait.reset_peak_memory_stats()
        whole = 4 * sum(p.numel() for p in m.parameters())
        for layer in m:
            fully_shard(layer)
        fully_shard(m)
        dist.barrier()
        assert plait.memory_stats(rank=rank)["peak"] - before < whole / 4 + whole / 12
        assert m.to_empty(device="cpu") is m

    on_ranks(4, run)


def test_to_empty_moves_a_divided_model():
    def run(rank):
        with plait.device("meta"):
            m = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 2))
        fully_shard(m[1])
        fully_shard(m)
        here = m[1].weight.device
        m.to_empty(device="cpu")
        assert {p.device for p in m.parameters()} == {here}
        other = plait.device("cpu", 2 + rank)
        m.to_empty(device=other)
        assert {p.to_local().device for p in m.parameters()} == {other}
        m(plait.tensor([1, 5], device=other)).sum().backward()
        assert {p.grad.to_local().device for p in m.parameters()} == {other}

    on_ranks(2, run)


def test_initialisers_of_divided_parameters():
    initialisers = (
        nn.init.xavier_normal_,
        nn.init.kaiming_uniform_,
        lambda w: nn.init.kaiming_normal_(w, mode="fan_out"),
        nn.init.orthogonal_,
        nn.init.eye_,
        lambda w: nn.init.sparse_(w, 0.3),
        lambda w: nn.init.trunc_normal_(w, std=0.02),
        lambda w: nn.init.constant_(w, 2.5),
        lambda w: w.data.normal_(0, 0.02),
        lambda w: w.detach().random_(0, 100),
    )

    def run(rank):
        for fill in initialisers:
            plait.manual_seed(9)
            want = nn.Linear(5, 7)
            fill(want.weight)
            plait.manual_seed(9)
            m = fully_shard(nn.Linear(5, 7))
            fill(m.weight)
            assert (m.weight.full_tensor().detach().numpy() == want.weight.detach().numpy()).all()
            for part in (want, m):
                plait.manual_seed(1)
                part.reset_parameters()
            assert (m.weight.full_tensor().detach().numpy() == want.weight.detach().numpy()).all()
            assert (m.bias.full_tensor().detach().numpy() == want.bias.detach().numpy()).all()
        want, m = nn.Embedding(10, 3, padding_idx=8), fully_shard(nn.Embedding(10, 3, padding_idx=8))
        for part in (want, m):
            plait.manual_seed(2)
            part.reset_parameters()
        assert (m.weight.full_tensor().detach().numpy() == want.weight.detach().numpy()).all()

    on_ranks(4, run)


def test_param_init_fn():
    def init(m):
        m.to_empty(device="cpu", recurse=False)
        for p in m.parameters(recurse=False):
            nn.init.constant_(p, math.prod(p.shape))
        for b in m.buffers(recurse=False):
            b.fill_(7.0)

    def run(rank):
        m = FSDP(made("meta"), auto_wrap_policy={Attention}, param_init_fn=init)
        with FSDP.summon_full_params(m):
            for n, p in m.named_parameters():
                np.testing.assert_array_equal(p.detach().numpy(), np.full(p.shape, math.prod(p.shape)), err_msg=n)
        assert (m.blocks[1].scale.numpy() == 7).all()

    on_ranks(3, run)


def test_repeats_by_a_number_are_known():
    x = plait.ones(2, 3, device="meta", requires_grad=True)
    for dim in (None, 0, 1, -1, -2):
        for n in (0, 3):
            out = x.repeat_interleave(n, dim)
            assert out.shape == plait.ones(2, 3).repeat_interleave(n, dim).shape and out.is_meta and out.requires_grad
    with pytest.raises(IndexError):
        x.repeat_interleave(2, 2)
