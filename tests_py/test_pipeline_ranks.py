"""The schedules of ranks train as one device does, and say what is wrong with what they are given."""

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed import pipelining
from plait.distributed.fsdp import fully_shard
from plait.distributed.pipelining import PipelineStage, SplitPoint
from stages import Head, assert_same, batch, block, grads, model

CLASSES = ["GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble"]


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("scale", [True, False])
def test_schedules_of_ranks(name, scale):
    cls = pipelining.get_schedule_class(name)
    ranks, m = 2, 4
    chunks = 1 if name in ("GPipe", "1F1B", "InterleavedZeroBubble") else 2
    x, y = batch(10)
    reference = model(ranks * chunks)
    sizes = [3, 3, 2, 2]
    for a, b in zip(x.split(sizes), y.split(sizes), strict=True):
        loss = nn.functional.mse_loss(reference(a), b)
        loss.backward(plait.tensor(len(a) / 10 if scale else 1.0, dtype=plait.float64))
    with plait.no_grad():
        out = reference(x).numpy()
    want, got, results = grads(reference), {}, {}

    def run(rank):
        dist.init_process_group()
        pipe = pipelining.pipeline(
            model(ranks * chunks).to("cpu:0"),
            (x[:1],),
            split_spec={str(i): SplitPoint.BEGINNING for i in range(1, ranks * chunks)},
        )
        mine = [i for i, r in enumerate(pipelining._schedule.placement(cls._name, ranks, chunks)) if r == rank]
        stages = [pipe.build_stage(i, f"cpu:{rank}") for i in mine]
        schedule = cls(stages if chunks > 1 else stages[0], m, nn.MSELoss(), scale_grads=scale)
        losses = []
        last = any(s.is_last for s in stages)
        args = (x,) if any(s.is_first for s in stages) else ()
        kwargs = {"target": y, "losses": losses} if last else {}
        result = schedule.step(*args, **kwargs)
        again = schedule.eval(*args)
        if last:
            results.update(out=result.numpy(), eval=again.numpy(), losses=len(losses))
        else:
            assert result is None
        for s in stages:
            got.update({n: p.grad.numpy().copy() for n, p in s.submod.named_parameters()})

    dist.spawn(run, nprocs=ranks)
    assert_same(got, want)
    np.testing.assert_allclose(results["out"], out, atol=1e-12)
    np.testing.assert_allclose(results["eval"], out, atol=1e-12)
    assert results["losses"] == m


def test_ranks_say_what_is_wrong():
    def run(rank):
        dist.init_process_group()
        stage = PipelineStage(nn.Linear(4, 4), rank, 2, f"cpu:{rank}")
        with pytest.raises(ValueError, match=r"number of microbatches \(1\) must be greater than or equal"):
            pipelining.Schedule1F1B(stage, 1)
        with pytest.raises(ValueError, match="out of range of 2 stages"):
            PipelineStage(nn.Linear(4, 4), 2, 2, "cpu:0")
        with pytest.raises(ValueError, match="zb-v has 2 stages on each device, got 1"):
            pipelining.ScheduleZBVZeroBubble(stage, 4)
        with pytest.raises(ValueError, match=r"must have the stages .*got"):
            pipelining.Schedule1F1B(PipelineStage(nn.Linear(4, 4), 1 - rank, 2, f"cpu:{rank}"), 2)
        s = pipelining.Schedule1F1B(stage, 2, nn.MSELoss())
        with pytest.raises(TypeError, match="losses must be a list but got a tuple"):
            s.step(losses=())
        with pytest.raises(RuntimeError, match="requires gradients to be enabled"), plait.no_grad():
            s.step()
        for wrong in (None, [], nn.Linear(1, 1)):
            with pytest.raises(TypeError, match="want a PipelineStage, or a list of some, got"):
                pipelining.Schedule1F1B(wrong, 2)
        with pytest.raises(TypeError, match="want a whole number of microbatches, got '2'"):
            pipelining.Schedule1F1B(stage, "2")
        with pytest.raises(TypeError, match="want a loss_fn that can be called, got 'mse'"):
            pipelining.Schedule1F1B(stage, 2, "mse")
        with pytest.raises(TypeError, match="PipelineStage: want a module, got str"):
            PipelineStage("m", 0, 2, "cpu:0")
        with pytest.raises(TypeError, match="want whole numbers of stages, got '0' of 2"):
            PipelineStage(nn.Linear(4, 4), "0", 2, "cpu:0")
        if rank == 0:
            with pytest.raises(ValueError, match="the target goes to the rank with the last stage"):
                s.step(plait.randn(4, 4), target=plait.randn(4, 4))
            with pytest.raises(ValueError, match="which got none"):
                s.step()
            with pytest.raises(ValueError, match="got 1 samples for 2 microbatches"):
                s.step(plait.randn(1, 4))
        else:
            with pytest.raises(ValueError, match="the batch goes to the rank with the first stage"):
                s.step(plait.randn(4, 4), target=plait.randn(4, 4))
            with pytest.raises(ValueError, match="needs a target"):
                s.step()

    dist.spawn(run, nprocs=2)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failing_rank_ends_the_others(failing):
    class Faulty(nn.Linear):
        def forward(self, x):
            self.calls = getattr(self, "calls", 0) + 1
            if dist.get_rank() == failing and self.calls == 3:
                raise KeyError("boom")
            return super().forward(x)

    def run(rank):
        dist.init_process_group()
        s = pipelining.Schedule1F1B(PipelineStage(Faulty(4, 4), rank, 2, f"cpu:{rank}"), 4, nn.MSELoss())
        s.step(*([plait.randn(4, 4)] if rank == 0 else []), **({"target": plait.randn(4, 4)} if rank else {}))

    with pytest.raises(KeyError, match="boom") as caught:
        dist.spawn(run, nprocs=2)
    assert f"raised in stage {failing} on cpu:{failing}, forward of micro-batch 2" in caught.value.__notes__


@pytest.mark.parametrize(
    ("way", "name"),
    [("fsdp", n) for n in ("GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble")]
    + [("ddp", n) for n in ("1F1B", "InterleavedZeroBubble", "ZBVZeroBubble")],
)
def test_data_parallel_stages(way, name):
    """Each of two pipelines of two ranks has half of the batch; the ranks with the same stages divide or copy them."""
    cls = pipelining.get_schedule_class(name)
    chunks = 2 if name in ("ZBVZeroBubble", "Interleaved1F1B") else 1
    count, (x, y) = 2 * chunks, batch(8)
    reference = model(count)
    optimizer = plait.optim.AdamW(reference.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(reference(x), y).backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 0.01)
        optimizer.step()
    got = {}

    def run(rank):
        dist.init_process_group()
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("stages", "copies"))
        place, half = mesh["stages"].get_local_rank(), mesh["copies"].get_local_rank()
        spec = {str(i): SplitPoint.BEGINNING for i in range(1, count)}
        pipe = pipelining.pipeline(model(count).to("cpu:0"), (x[:1],), split_spec=spec)
        mine = [i for i, r in enumerate(pipelining._schedule.placement(cls._name, 2, chunks)) if r == place]
        stages = []
        for i in mine:
            part = pipe.get_stage_module(i).to(f"cpu:{rank}")
            if way == "fsdp":
                for layer in part:
                    fully_shard(layer, mesh=mesh["copies"])  # units, of which the stage's own has no parameters
                fully_shard(part, mesh=mesh["copies"])
            else:
                part = nn.parallel.DistributedDataParallel(part, process_group=mesh["copies"].get_group())
            stages.append(PipelineStage(part, i, count, f"cpu:{rank}", group=mesh["stages"].get_group()))
        schedule = cls(stages if chunks > 1 else stages[0], 2, nn.MSELoss())
        optimizer = plait.optim.AdamW([p for s in stages for p in s.submod.parameters()], lr=0.01)
        args = (x.split(4)[half],) if 0 in mine else ()
        kwargs = {"target": y.split(4)[half]} if count - 1 in mine else {}
        for _ in range(3):
            optimizer.zero_grad()
            schedule.step(*args, **kwargs)
            schedule.clip_grad_norm_(0.01)
            optimizer.step()
        for s in stages:
            for n, p in s.submod.named_parameters():
                full = p.full_tensor().detach() if way == "fsdp" else p.detach()
                got[n.removeprefix("module."), half] = full.numpy().copy()

    dist.spawn(run, nprocs=4)
    want = {n: p.detach().numpy() for n, p in reference.named_parameters()}
    assert {n for n, _ in got} == set(want)
    for (n, _), value in got.items():
        np.testing.assert_allclose(value, want[n], atol=1e-12, err_msg=n)


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"])
def test_weights_tied_between_ranks(name):
    cls = pipelining.get_schedule_class(name)
    ranks, m = 2, 3
    chunks = 2 if name == "ZBVZeroBubble" else 1
    x, y = plait.randint(0, 7, (6, 3)), plait.randint(0, 7, (6, 3))

    def loss_fn(out, target):
        return nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())

    def build(seed=2):
        plait.manual_seed(seed)
        embedding, middle = nn.Embedding(7, 4), nn.Linear(4, 4)
        again = nn.Linear(4, 4)
        again.weight = middle.weight
        return nn.Sequential(embedding, middle, block(), again, Head(embedding.weight)).double().to("cpu:0")

    whole_model, states, norms, losses_of = build(), {}, [], []
    optimizer = plait.optim.SGD(whole_model.parameters(), lr=0.3)
    for _ in range(3):
        for _ in range(2):  # gradients add up over two steps
            loss = loss_fn(whole_model(x), y)
            loss.backward()
        losses_of.append(loss.item())
        norms.append(nn.utils.clip_grad_norm_(whole_model.parameters(), 0.5).item())
        optimizer.step()
        optimizer.zero_grad()
    want = {n: p.detach().numpy().copy() for n, p in whole_model.named_parameters(remove_duplicate=False)}

    def run(rank):
        dist.init_process_group()
        full = build() if rank == 0 else build(9)
        if rank:  # all but what is tied with the first rank is as there
            full.load_state_dict({**build().state_dict(), "0.weight": full[0].weight, "4.weight": full[0].weight})
        spec = {"2": SplitPoint.BEGINNING} if chunks == 1 else {str(i): SplitPoint.BEGINNING for i in (1, 3, 4)}
        pipe = pipelining.pipeline(full, (x[:1],), split_spec=spec)
        mine = [rank] if chunks == 1 else [rank, 3 - rank]
        stages = [pipe.build_stage(i, f"cpu:{rank}") for i in mine]
        schedule = cls(stages if chunks > 1 else stages[0], m, loss_fn)
        first, last = any(s.is_first for s in stages), any(s.is_last for s in stages)
        params = {id(p): p for s in stages for p in s.submod.parameters()}
        optimizer = plait.optim.SGD(list(params.values()), lr=0.3)
        for i in range(3):
            for _ in range(2):
                losses = []
                schedule.step(*((x,) if first else ()), **({"target": y, "losses": losses} if last else {}))
            if last:
                assert abs(sum(v.item() for v in losses) / m - losses_of[i]) < 1e-12
            assert abs(schedule.clip_grad_norm_(0.5).item() - norms[i]) < 1e-12
            optimizer.step()
            optimizer.zero_grad()
        for s in stages:
            for n, p in s.submod.named_parameters():
                states[n, rank] = p.detach().numpy().copy()

    dist.spawn(run, nprocs=ranks)
    for (n, _), value in states.items():
        np.testing.assert_allclose(value, want[n], atol=1e-12, err_msg=n)
    assert {n for n, _ in states} == set(want)


def test_wrong_ties_are_named():
    def run(rank):
        dist.init_process_group()
        layer = nn.Linear(4, 4)
        with pytest.raises(ValueError, match=r"weight is tied between the stages \[0, 2\], not 1"):
            PipelineStage(layer, 1, 3, "cpu:0", tied={"weight": [0, 2]})
        with pytest.raises(AttributeError, match="wheight"):
            PipelineStage(layer, 1, 3, "cpu:0", tied={"wheight": [0, 1]})
        stage = PipelineStage(layer, rank, 2, f"cpu:{rank}", tied={"weight": [0, 1, 5]})
        with pytest.raises(ValueError, match=r"shared by the stages \[0 1 5\], there are 2"):
            pipelining.Schedule1F1B(stage, 2)
        stages = [
            PipelineStage(nn.Linear(4, 4), i, 4, f"cpu:{rank}", tied={"weight": [0, 1, 2, 3]}) for i in (rank, 3 - rank)
        ]
        with pytest.raises(ValueError, match=r"different tensors that are tied between the stages \[0, 1, 2, 3\]"):
            pipelining.ScheduleZBVZeroBubble(stages, 2)

    dist.spawn(run, nprocs=2)


def test_splits_below_the_top_level():
    def build():
        plait.manual_seed(4)
        return nn.Sequential(nn.Linear(4, 4), nn.Sequential(block(), nn.Sequential(block(), block())), block()).double()

    m, x = build(), batch(2)[0]
    begin, end = SplitPoint.BEGINNING, SplitPoint.END
    for spec, want in (
        ({"1.1": begin}, [["0", "1.0"], ["1.1.0", "1.1.1", "2"]]),
        ({"1.1.1": begin}, [["0", "1.0", "1.1.0"], ["1.1.1", "2"]]),
        ({"1.1.0": begin, "1": end}, [["0", "1.0"], ["1.1.0", "1.1.1"], ["2"]]),
        ({"1.0": begin, "1": begin, "1.1.1": end}, [["0"], ["1.0", "1.1.0", "1.1.1"], ["2"]]),
        ({"0": begin, "2": end}, [["0", "1.0", "1.1.0", "1.1.1", "2"]]),
    ):
        pipe = pipelining.pipeline(m, (x,), split_spec=spec)
        names = [n for part in pipe.info()["parameters"] for n in part]
        assert names == [n for n, _ in m.named_parameters()], spec
        every = {n for layers in want for n in layers}
        for i, layers in enumerate(want):
            found = {n for n, _ in pipe.get_stage_module(i).named_modules() if n in every}
            assert sorted(found) == layers, spec
        value = x
        for i in range(pipe.num_stages):
            value = pipe.get_stage_module(i)(value)
        np.testing.assert_array_equal(value.detach().numpy(), m(x).detach().numpy())
    with pytest.raises(TypeError, match="0 is a Linear, want a Sequential to be split below it"):
        pipelining.pipeline(m, (x,), split_spec={"0.weight": begin})
    with pytest.raises(ValueError, match=r"no layer '1\.7' to split at, only 1\.0, 1\.1"):
        pipelining.pipeline(m, (x,), split_spec={"1.7": begin})
    with pytest.raises(TypeError, match="want a SplitPoint for '1', got 'begin'"):
        pipelining.pipeline(m, (x,), split_spec={"1": "begin"})
    m.eval()
    assert not any(part.training for part in pipelining.pipeline(m, (x,), split_spec={"1.1": begin})._stages)


def test_pipeline_function():
    m = model(4)
    pipe = pipelining.pipeline(m, (batch(2)[0],), split_spec={"2": SplitPoint.BEGINNING, "0": SplitPoint.END})
    assert pipe.num_stages == 3
    assert [len(pipe.get_stage_module(i)) for i in range(3)] == [1, 1, 2]
    assert pipe.info()["parameters"][2][0] == "2.0.weight"
    with pytest.raises(ValueError, match="no layer 'x'"):
        pipelining.pipeline(m, (batch(2)[0],), split_spec={"x": SplitPoint.END})
    assert pipelining.pipeline(m, (batch(2)[0],), split_policy=lambda _: [3, 1]).num_stages == 2
    with pytest.raises(TypeError, match="want mb_args to be a tuple of arguments, got Tensor"):
        pipelining.pipeline(m, batch(2)[0])
    with pytest.raises(TypeError, match="want a name, got 3"):
        pipelining.get_schedule_class(3)
    with pytest.raises(ValueError, match="unknown schedule name"):
        pipelining.get_schedule_class("2F2B")


def test_print_shows_stages():
    shown = {}

    def run(rank):
        dist.init_process_group()
        weight = nn.Embedding(3, 2)
        layers = nn.Sequential(weight, Head(weight.weight))
        pipe = pipelining.pipeline(
            layers.to("cpu:0"), (plait.tensor([1], device="cpu:0"),), split_spec={"1": SplitPoint.BEGINNING}
        )
        before = repr(pipe)
        stage = pipe.build_stage(rank, f"cpu:{rank}")
        shown[rank] = before, repr(stage), repr(pipelining.Schedule1F1B(stage, 4, nn.MSELoss()))

    dist.spawn(run, nprocs=2)
    pipe = """Pipe(
  (stage 0): Sequential(
    (0): Embedding(3, 2)
  )
  (stage 1): Sequential(
    (1): Head()
  )
)"""
    stage = """PipelineStage(
  stage 1 of 2, device=cpu:1, tied with the stages 0
  (submod): Sequential(
    (1): Head()
  )
)"""
    assert shown[1] == (pipe, stage, "<Schedule1F1B: 2 stages, of them here 1, 4 micro-batches>")
    assert shown[0][1].startswith("PipelineStage(\n  stage 0 of 2, device=cpu:0, tied with the stages 1\n")
