"""Ready plans: what they name, that they gather nothing, and what blocks exchange."""

import copy

import plait
import pytest
from laid import WIDTH, GPTBlock, LlamaBlock, ViTBlock, batch, loss_of, made, on_ranks, whole
from plait import distributed as dist
from plait import nn
from plait.distributed.tensor import DTensor, Replicate, Shard, strict
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module, ready_plan


@pytest.mark.parametrize(("sequence", "pieces"), [(False, 1), (True, 1), (False, 3), (True, 2)])
@pytest.mark.parametrize("block", [LlamaBlock, GPTBlock, ViTBlock])
def test_ready_plans_gather_nothing(block, sequence, pieces):
    alone = made(block)
    x, y = batch(0)
    loss_of(alone(x), y).backward()

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        m = plait.parallelize(made(block), mesh, tp={"sequence": sequence, "pieces": pieces}, loss_fn=loss_of)
        with strict():
            m.step(x, target=y)
        divided = [n for n, p in m.named_parameters() if isinstance(p, DTensor) and p.placements != (Replicate(),)]
        assert "head.weight" in divided and "start.kinds.weight" in divided and len(divided) > 2 + 3 * 4
        want = dict(alone.named_parameters())
        for name, p in m.named_parameters():
            assert plait.allclose(whole(p.grad), want[name].grad, rtol=1e-9, atol=1e-10), name

    on_ranks(2, fn)


@pytest.mark.parametrize("block", [LlamaBlock, GPTBlock, ViTBlock])
def test_what_a_block_exchanges(block):
    """Per block of two ranks, in bytes of activations: four all-reduces, or four all-gathers and reduce-scatters.

    One layer for queries, keys and values adds exchanges, because its parts are not those of whole heads.
    """
    x, y = batch(0)
    unit = x.numel() * WIDTH * 8
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")

    def moved(sequence, pieces, depth):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        tp = {"sequence": sequence, "pieces": pieces}
        m = plait.parallelize(made(block, depth), mesh, tp=tp, loss_fn=loss_of)
        m.step(x, target=y)
        dist.barrier()
        group = mesh.get_group("tp")
        before = [group.bytes_moved(k) for k in kinds]
        m.step(x, target=y)
        dist.barrier()
        return [group.bytes_moved(k) - b for k, b in zip(kinds, before, strict=True)]

    def fn(rank):
        together = 2 if block is not LlamaBlock else 0
        for sequence, pieces in ((False, 1), (True, 1), (False, 2), (True, 4)):
            want = (0, 2, 2, together) if sequence else (4, 0, 0, together)
            before, after = moved(sequence, pieces, 3), moved(sequence, pieces, 4)
            more = [(b - a) / unit for a, b in zip(before, after, strict=True)]
            # The gradients of norms and biases, which are on all ranks, are summed over parts of a sequence.
            assert more == pytest.approx(want, abs=0.15)

    on_ranks(2, fn)


def test_ready_plan_names_each_kind_of_layer():
    plan = ready_plan(made(GPTBlock))
    assert list(plan) == [
        "blocks.*.attn.c_attn", "blocks.*.attn.c_proj", "blocks.*.mlp.c_fc", "blocks.*.mlp.c_proj", "start.kinds",
        "head",
    ]  # fmt: skip
    assert {type(plan[n]) for n in ("start.kinds", "blocks.*.attn.c_proj")} == {RowwiseParallel}
    assert {type(plan[n]) for n in ("head", "blocks.*.mlp.c_fc")} == {ColwiseParallel}
    with pytest.raises(ValueError, match=r"no layer has a name that is known .* the linear layers are 0, 1"):
        ready_plan(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))


class Conv1D(nn.Module):
    """The linear layer of transformers' GPT-2, whose weight is the transpose of a Linear's."""

    def __init__(self, features, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(plait.randn(width, features)), nn.Parameter(plait.randn(features))

    def forward(self, x):
        return plait.addmm(self.bias, x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


class Other(nn.Module):
    """Layers of other kinds: attention of this package, layers in a Sequential, and transposed weights."""

    def __init__(self):
        super().__init__()
        encoder = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(encoder, 2)
        self.mixers = nn.ModuleDict(
            {
                f"mixer_{i}": nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 20), nn.GELU(), nn.Linear(20, 8))
                for i in (0, 1)
            }
        )
        self.h = nn.ModuleList([nn.ModuleDict({"c_fc": Conv1D(10, 8), "c_proj": Conv1D(8, 10)})])

    def forward(self, x):
        x = self.layers(x)
        for mixer in self.mixers.values():
            x = x + mixer(x)
        return x + self.h[0]["c_proj"](self.h[0]["c_fc"](x).tanh())


@pytest.mark.parametrize("sequence", [False, True])
def test_ready_plans_of_other_kinds_of_layers(sequence):
    plait.manual_seed(0)
    alone = Other().double()
    start = copy.deepcopy(alone)
    x = plait.arange(5 * 6 * 8.0).double().reshape(5, 6, 8).sin()
    alone(x).square().mean().backward()
    plan = ready_plan(alone, sequence=sequence)
    assert {
        "layers.layers.*.self_attn", "layers.layers.*.self_attn.out_proj", "layers.layers.*.linear1",
        "mixers.mixer_*.1", "mixers.mixer_*.3", "h.*.c_fc", "h.*.c_proj",
    } <= set(plan)  # fmt: skip
    assert ("layers.layers.*.norm1" in plan) == sequence

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        m = plait.parallelize(copy.deepcopy(start), mesh, tp={"sequence": sequence})
        with strict():
            m(x).square().mean().backward()
        assert m.h[0]["c_fc"].weight.placements == (Shard(1),) and m.h[0]["c_proj"].weight.placements == (Shard(0),)
        want = dict(alone.named_parameters())
        for name, p in m.named_parameters():
            assert plait.allclose(whole(p.grad), want[name].grad, rtol=1e-8, atol=1e-10), name

    on_ranks(2, fn)


def mine(rank):
    return [o for o in dist.flight_recorder().operations if o["rank"] == rank and o["group"] == "world"]


def test_pieces_are_more_and_smaller_exchanges():
    def exchanged(rank, sequence, pieces):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        plait.manual_seed(0)
        pair = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
        inner, outer = (Shard(1), Shard(1)) if sequence else (None, Replicate())
        plan = {
            "0": ColwiseParallel(input_layouts=inner, pieces=pieces),
            "2": RowwiseParallel(output_layouts=outer, pieces=pieces),
        }
        parallelize_module(pair, mesh, plan)
        x = plait.arange(5 * 4 * 8.0).reshape(5, 4, 8).cos()
        if sequence:
            x = x[:, 2 * rank : 2 * rank + 2].clone()
        x.requires_grad_()
        group = mesh.get_group("tp")
        dist.barrier(group)
        before = max(o["seq"] for o in mine(rank))
        out = pair(x)
        out.square().sum().backward()
        dist.barrier(group)
        made = [o["name"] for o in mine(rank) if o["seq"] > before]
        return [t.detach().clone() for t in (out, x.grad, *(p.grad.full_tensor() for p in pair.parameters()))], made

    def fn(rank):
        for sequence, kinds in ((False, ["all_reduce"]), (True, ["all_gather", "reduce_scatter"])):
            want, few = exchanged(rank, sequence, 1)
            for pieces in (2, 3, 9):  # of five rows: the ninth part of one is none
                got, many = exchanged(rank, sequence, pieces)
                for kind in kinds:
                    assert many.count(kind) == min(pieces, 5) * few.count(kind) > 0, kind
                for a, b in zip(got, want, strict=True):
                    assert plait.allclose(a, b, rtol=1e-5, atol=1e-6)
        layer = copy.deepcopy(ColwiseParallel(pieces=2)._apply(nn.Linear(4, 4), dist.init_device_mesh("cpu", (2,))))
        assert layer(plait.ones(4)).shape == (2,) and layer(plait.ones(1, 4)).shape == (1, 2)
        assert type(layer).__name__ == "Linear" and isinstance(layer, nn.Linear)

    on_ranks(2, fn)
    for wrong in (0, -1, True, 1.5, "2"):
        with pytest.raises(ValueError, match=r"RowwiseParallel: want at least one piece, got pieces="):
            RowwiseParallel(pieces=wrong)
