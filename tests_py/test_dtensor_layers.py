"""Layers divided over ranks, and modules of distributed tensors: equal to one device."""

import copy

import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    gathered_bytes,
    strict,
)
from plait.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from plait.nn import functional as F
from ranks import close
from ranks import on_one_device as on_ranks


class Block(nn.Module):
    """A transformer's block whose heads and hidden features can be divided."""

    def __init__(self, width=8, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        h = self.norm1(x)
        b, t, _ = h.shape
        q, k, v = (f(h).view(b, t, -1, 2).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1)
        x = x + self.o(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """Embedding, blocks and scores."""

    def __init__(self, vocabulary=12, width=8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def trained(model, ids, targets, loss_of, steps=3):
    optimizer = plait.optim.AdamW(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(ids), targets)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        whole = loss.full_tensor() if isinstance(loss, DTensor) else loss
        losses.append((whole.item(), (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()))
    return losses, [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]


def pieces():
    plait.manual_seed(3)
    model = Model().double()
    ids = plait.randint(0, 12, (4, 6))
    targets = plait.randint(0, 12, (4, 6))
    return model, ids, targets


def cross_entropy(scores, targets):
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


PLANS = {
    "tensor parallel": {
        "blocks.*.q": ColwiseParallel(),
        "blocks.*.k": ColwiseParallel(),
        "blocks.*.v": ColwiseParallel(),
        "blocks.*.o": RowwiseParallel(),
        "blocks.*.up": ColwiseParallel(),
        "blocks.*.down": RowwiseParallel(),
    },
    "with the vocabulary": {
        "embed": RowwiseParallel(),
        "blocks.*.up": ColwiseParallel(),
        "blocks.*.down": RowwiseParallel(),
        "head": ColwiseParallel(output_layouts=Replicate()),
    },
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("n", [2, 4])
def test_parallel_layers_train_as_one_device(plan, n):
    model, ids, targets = pieces()
    losses, params = trained(copy.deepcopy(model), ids, targets, cross_entropy)

    def fn(rank):
        mine = parallelize_module(copy.deepcopy(model), init_device_mesh("cpu", (n,)), plan)
        with strict():
            got, final = trained(mine, ids, targets, cross_entropy)
        for step, want in zip(got, losses, strict=True):
            assert step == pytest.approx(want, rel=1e-9)
        for x, y in zip(final, params, strict=True):
            close(x, y)

    on_ranks(n, fn)


def test_ranks_with_other_models():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        wide = nn.Sequential(nn.Linear(2, 3 + rank), nn.Linear(3, 4 + 2 * rank))
        difference = (
            r"rank 0 has 1\.weight, .*float32 of shape \(4, 3\), rank 1 has 1\.weight, .* \(6, 3\); want the same"
        )
        with pytest.raises(plait.DistributedError, match="the ranks' modules differ: " + difference):
            parallelize_module(wide, mesh, {"1": ColwiseParallel()})
        more = nn.Sequential(*(nn.Linear(2, 2) for _ in range(1 + rank)))
        with pytest.raises(plait.DistributedError, match=r"rank 0 has nothing there, rank 1 has 1\.weight"):
            parallelize_module(more, mesh, {"1": ColwiseParallel()})
        other = nn.Sequential(nn.Linear(2 + rank, 3), nn.Linear(3, 4))  # the plan does not name what differs
        parallelize_module(other, mesh, {"1": ColwiseParallel()})

    on_ranks(2, fn)


@pytest.mark.parametrize("placement", [Replicate(), Shard(0)], ids=["replicated", "sharded"])
def test_distributed_modules_train_as_one_device(placement):
    model, ids, targets = pieces()
    losses, params = trained(copy.deepcopy(model), ids, targets, cross_entropy)

    def fn(rank):
        mesh = init_device_mesh("cpu", (3,))

        def divide(name, module, mesh):
            for key, p in list(module._parameters.items()):
                if p is not None:
                    module.register_parameter(key, nn.Parameter(distribute_tensor(p.detach(), mesh, [placement])))

        mine = distribute_module(copy.deepcopy(model), mesh, divide)
        assert all(isinstance(p, DTensor) and isinstance(p, nn.Parameter) for p in mine.parameters())
        with strict():
            before = gathered_bytes()
            got, final = trained(
                mine,
                distribute_tensor(ids, mesh, [Shard(0)]),
                distribute_tensor(targets, mesh, [Shard(0)]),
                cross_entropy,
            )
            assert gathered_bytes() == before
        for step, want in zip(got, losses, strict=True):
            assert step == pytest.approx(want, rel=1e-9)
        for x, y in zip(final, params, strict=True):
            close(x, y)

    on_ranks(3, fn)


def test_sequence_parallel_block():
    plait.manual_seed(1)
    mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)).double()
    x = plait.randn(2, 6, 8).double()
    want = copy.deepcopy(mlp)
    want(x).square().sum().backward()

    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        mine = parallelize_module(
            copy.deepcopy(mlp),
            mesh,
            {
                "0": SequenceParallel(),
                "1": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
                "3": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
            },
        )
        y = mine(distribute_tensor(x, mesh, [Shard(1)]))
        assert y.placements == (Shard(1),)
        y.square().sum().backward()
        for p, q in zip(mine.parameters(), want.parameters(), strict=True):
            close(p.grad.full_tensor(), q.grad)

    on_ranks(2, fn)


def test_a_model_with_a_divided_vocabulary_trains_by_loss_parallel():
    model, ids, targets = pieces()
    losses, params = trained(copy.deepcopy(model), ids, targets, cross_entropy)
    plan = {
        **PLANS["tensor parallel"],
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }

    def fn(rank):
        mine = parallelize_module(copy.deepcopy(model), init_device_mesh("cpu", (2,)), plan)
        with strict(), loss_parallel():
            got, final = trained(mine, ids, targets, cross_entropy)
        for step, want in zip(got, losses, strict=True):
            assert step == pytest.approx(want, rel=1e-9)
        for x, y in zip(final, params, strict=True):
            close(x, y)

    on_ranks(2, fn)


def test_two_dimensions():
    model, ids, targets = pieces()
    losses, params = trained(copy.deepcopy(model), ids, targets, cross_entropy)

    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))

        def divide(name, module, mesh):
            for key, p in list(module._parameters.items()):
                if p is not None:
                    placed = [Replicate(), Shard(0) if isinstance(module, nn.Linear) else Replicate()]
                    module.register_parameter(key, nn.Parameter(distribute_tensor(p.detach(), mesh, placed)))

        mine = distribute_module(copy.deepcopy(model), mesh, divide)
        batch = [Shard(0), Replicate()]
        with strict():
            got, final = trained(
                mine, distribute_tensor(ids, mesh, batch), distribute_tensor(targets, mesh, batch), cross_entropy
            )
        for step, want in zip(got, losses, strict=True):
            assert step == pytest.approx(want, rel=1e-9)
        for x, y in zip(final, params, strict=True):
            close(x, y)

    on_ranks(4, fn)


def test_prepared_inputs():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        layer = parallelize_module(
            nn.Identity(),
            mesh,
            PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate()),
        )
        out = layer(plait.full((2, 3), float(rank)))
        assert out.placements == (Replicate(),) and out.shape == (4, 3)
        assert out.to_local()[:, 0].tolist() == [0, 0, 1, 1]

    on_ranks(2, fn)


def test_dropout_is_that_of_one_device():
    plait.manual_seed(9)
    x = plait.ones(6, 4)
    want = F.dropout(x, 0.5)

    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        plait.manual_seed(9)
        got = F.dropout(distribute_tensor(x, mesh, [Shard(0)]), 0.5)
        assert got.full_tensor().tolist() == want.tolist()

    on_ranks(2, fn)


def test_ranks_with_seeds_of_their_own_draw_alike():
    plait.manual_seed(5)
    want = F.dropout(plait.ones(6, 4), 0.5)

    def fn(rank):
        plait.manual_seed(5 + rank)
        mesh = init_device_mesh("cpu", (2,))
        model = parallelize_module(nn.Linear(4, 4), mesh, ColwiseParallel())
        model(plait.ones(1, 4))
        ordinary = plait.randn(3)
        drawn = [plait.empty(3) for _ in range(2)]
        dist.all_gather(drawn, ordinary)
        assert drawn[0].tolist() == drawn[1].tolist()
        plait.manual_seed(5 + rank)
        whole = distribute_tensor(plait.ones(6, 4), mesh)
        assert F.dropout(whole, 0.5).to_local().tolist() == want.tolist()

    on_ranks(2, fn)
