"""A step of ranks that fails on one fails on all, soon, and the next one is made."""

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed import pipelining
from plait.distributed.pipelining import PipelineStage
from stages import assert_same, batch, block, grads, model

PHASES = ["forward", "backward", "loss", "output", "begin"]


class _Tight(plait.autograd.Function):
    @staticmethod
    def forward(ctx, x, fails):
        ctx.fails = fails
        return x * 1

    @staticmethod
    def backward(ctx, g):
        if ctx.fails:
            raise plait.OutOfMemoryError("no memory for the gradient")
        return g, None


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "ZBVZeroBubble"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("failing", [0, 1])
def test_out_of_memory_on_a_rank(name, phase, failing, monkeypatch):
    cls = pipelining.get_schedule_class(name)
    count = 4 if name == "ZBVZeroBubble" else 2
    place = pipelining._schedule.placement(cls._name, 2, count // 2)
    if phase in ("loss", "output") and place[-1] != failing:
        pytest.skip("this rank has no loss")
    x, y = batch(8)
    reference = model(count)
    for a, b in zip(x.split(4), y.split(4), strict=True):
        (nn.functional.mse_loss(reference(a), b) / 2).backward()
    want, got, armed = grads(reference), {}, {}
    moved, joined = pipelining.schedules.move_to, pipelining.schedules.merge_outputs

    def short(what):
        if armed.get(dist.get_rank()) == what:
            raise plait.OutOfMemoryError("no memory for " + what)

    def move(*args):
        short("begin")
        return moved(*args)

    def join(parts):
        short("output")
        return joined(parts)

    monkeypatch.setattr(pipelining.schedules, "move_to", move)
    monkeypatch.setattr(pipelining.schedules, "merge_outputs", join)

    def loss_fn(out, target):
        short("loss")
        return nn.functional.mse_loss(out, target)

    class Stage(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.calls = inner, 0

        def forward(self, x):
            self.calls += 1
            if self.calls % 2 == 0:  # the second micro-batch
                short("forward")
            return _Tight.apply(self.inner(x), armed.get(dist.get_rank()) == "backward" and self.calls % 2 == 0)

    def run(rank):
        dist.init_process_group()
        layers = list(model(count).to("cpu:0"))
        mine = [i for i in range(count) if place[i] == rank]
        stages = [PipelineStage(Stage(layers[i]), i, count, f"cpu:{rank}") for i in mine]
        schedule = cls(stages if count > 2 else stages[0], 2, loss_fn)
        args = (x,) if 0 in mine else ()
        kwargs = {"target": y} if count - 1 in mine else {}
        schedule.step(*args, **kwargs)  # its gradients are there when the next one fails
        if rank == failing:
            armed[rank] = phase
        with pytest.raises(plait.OutOfMemoryError) as caught:
            schedule.step(*args, **kwargs)
        assert "no memory for" in str(caught.value)
        assert rank == failing or str(caught.value).startswith(f"rank {failing} has failed: ")
        assert all(p.grad is None for s in stages for p in s.submod.parameters())
        armed.clear()
        dist.barrier()
        for s in stages:
            s.submod.calls = 0
        schedule.step(*args, **kwargs)
        for i, s in zip(mine, stages, strict=True):
            got.update({n.replace("inner", str(i)): p.grad.numpy().copy() for n, p in s.submod.named_parameters()})

    dist.spawn(run, nprocs=2)
    assert_same(got, want)


def test_a_failed_evaluation_keeps_gradients():
    x, y = batch(4)

    class Stage(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = block().double()

        def forward(self, x):
            if dist.get_rank() == 1 and not self.training:
                self.train()
                raise KeyError("boom")
            return self.inner(x)

    def run(rank):
        dist.init_process_group()
        stage = PipelineStage(Stage(), rank, 2, f"cpu:{rank}")
        schedule = pipelining.Schedule1F1B(stage, 2, nn.MSELoss())
        schedule.step(*([] if rank else [x]), **({"target": y} if rank else {}))
        before = [p.grad.numpy().copy() for p in stage.submod.parameters()]
        stage.submod.eval()
        kind, text = (KeyError, "boom") if rank else (dist.DistError, "rank 1 has failed: .*KeyError: 'boom'")
        with pytest.raises(kind, match=text):
            schedule.eval(*([] if rank else [x]))
        for a, p in zip(before, stage.submod.parameters(), strict=True):
            np.testing.assert_array_equal(a, p.grad.numpy())
        out = schedule.eval(*([] if rank else [x]))
        assert (out is None) == (rank == 0)

    dist.spawn(run, nprocs=2)
