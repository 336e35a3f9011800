"""One rank does something else than the others: an error on every rank that names it, soon, and no wrong number."""

import contextlib
import random
import time

import plait
from parallel_cases import LONG, WIDE, Residual
from plait import distributed as dist
from plait import nn
from plait.distributed import pipelining
from plait.distributed.fsdp import FSDP, fully_shard
from plait.distributed.pipelining import PipelineStage
from plait.nn.parallel import DistributedDataParallel
from stages import Head

SOON = 15.0  # seconds, far below the 60 that ranks wait for each other
MISTAKES = (
    "skips a step",
    "returns",
    "raises",
    "raises in a hook",
    "goes forward twice",
    "skips backward",
    "skips a unit",
    "calls another unit",
    "swaps the units",
    "gives another shape",
    "makes another collective",
    "waits at a barrier",
    "sends to nobody",
    "makes a group alone",
    "destroys the group",
    "clips alone",
    "saves alone",
    "exits",
)


class Own(Exception):
    """What a rank raises by itself."""


class Parts(nn.Module):
    """Layers of one shape, of which a rank may use others."""

    def __init__(self, rng):
        super().__init__()
        self.parts = nn.ModuleList([Residual(rng) if rng.random() < 0.3 else nn.Linear(WIDE, WIDE) for _ in range(3)])
        self.head, self.order = Head(nn.Parameter(plait.randn(2, WIDE))), None

    def forward(self, x):
        for i in self.order or range(len(self.parts)):
            x = self.parts[i](x)
        return self.head(x)


class Mistake:
    """What a seed says."""

    def __init__(self, seed):
        self.seed, rng = seed, random.Random(f"mistake {seed}")
        self.world, self.what = rng.randint(2, 4), rng.choice(MISTAKES)
        self.who, self.steps = rng.randrange(self.world), rng.randint(2, 4)
        self.when = rng.randrange(self.steps)
        self.mode = rng.choice(["ddp", "unused", "joined norm", "fsdp", "units", "wrapped", "gpipe", "1f1b"])
        self.option = rng.random() < 0.5
        self.kept = []

    def __repr__(self):
        return f"{self.mode} on {self.world} ranks: in step {self.when} of {self.steps} rank {self.who} {self.what}"

    def model(self):
        plait.manual_seed(self.seed)
        m = Parts(random.Random(self.seed))
        if self.mode == "fsdp":
            return fully_shard(m)
        if self.mode == "units":
            for part in m.parts:
                fully_shard(part, reshard_after_forward=self.option)
            return fully_shard(m)
        if self.mode == "wrapped":
            return FSDP(m, auto_wrap_policy={nn.Linear, Residual})
        if self.mode == "joined norm":
            m.parts.insert(1, nn.SyncBatchNorm(LONG))
        return DistributedDataParallel(m, find_unused_parameters=self.mode == "unused", static_graph=self.option)

    def train(self, rank):
        m = self.model()
        self.kept.append(m)  # until the ranks have ended
        inner = m.module if isinstance(m, DistributedDataParallel) else m
        opt = plait.optim.SGD(m.parameters(), lr=0.01)
        for step in range(self.steps):
            wrong = self.what if (rank, step) == (self.who, self.when) else ""
            if self.before(wrong, rank):
                return
            if wrong == "skips a step":
                continue
            opt.zero_grad()
            inner.order = {"skips a unit": (0, 2), "calls another unit": (1, 1, 2), "swaps the units": (2, 1, 0)}.get(
                wrong
            )
            shape = (2, LONG, WIDE + 1) if wrong == "gives another shape" else (2, LONG, WIDE)
            y = m(plait.randn(*shape))
            if wrong == "goes forward twice":
                y = y + m(plait.randn(*shape))
            if wrong == "raises in a hook":
                y.register_hook(fail)
            if wrong != "skips backward":
                y.square().mean().backward()
            if wrong == "clips alone":
                nn.utils.clip_grad_norm_(m.parameters(), 0.1)
            opt.step()
        for p in m.parameters():  # what came from others is there, or its error
            p.detach().sum().item()

    def pipeline(self, rank):
        cls = pipelining.get_schedule_class(self.mode)
        layer = nn.Linear(WIDE, WIDE)
        stage = PipelineStage(layer, rank, self.world, f"cpu:{rank}")
        schedule = cls(stage, self.world, nn.MSELoss())
        for step in range(self.steps):
            wrong = self.what if (rank, step) == (self.who, self.when) else ""
            if self.before(wrong, rank):
                return
            if wrong == "skips a step":
                continue
            rows = 2 * self.world + (
                wrong == "gives another shape"
            )  # micro-batches of one row are broadcast, with a warning
            x = plait.randn(rows, WIDE + (wrong == "gives another shape"))
            hook = layer.register_forward_hook(fail) if wrong == "raises in a hook" else None
            target = {"target": plait.randn(rows, WIDE)} if stage.is_last else {}
            for _ in range(1 + (wrong == "goes forward twice")):
                schedule.step(*(x,) * stage.is_first, **target)
            if hook is not None:
                hook.remove()
            if wrong == "clips alone":
                schedule.clip_grad_norm_(0.1)
        layer.weight.grad.sum().item()

    def before(self, wrong, rank):
        """Does what is no step; returns whether the rank is to return."""
        if wrong == "raises":
            raise Own("no more")
        if wrong == "exits":
            raise SystemExit(3)
        if wrong == "makes another collective":
            dist.all_reduce(plait.ones(WIDE, WIDE))
        elif wrong == "waits at a barrier":
            dist.barrier()
        elif wrong == "sends to nobody":
            dist.send(plait.ones(3), (rank + 1) % self.world)
        elif wrong == "makes a group alone":
            dist.new_group([rank])
        elif wrong == "destroys the group":
            dist.destroy_process_group()
        elif wrong == "saves alone":
            dist.checkpoint.save({"x": plait.ones(3)}, checkpoint_id=f"/tmp/plait-mistake-{self.seed}")
        return wrong == "returns"


def fail(*_):
    raise Own("no more")


HARMLESS = {  # what changes nothing for the other ranks, by mode; an error is right, too
    "skips a unit": ("unused", "fsdp"),  # one unit of all parts: what a rank has not used counts as 0
    "swaps the units": ("ddp", "unused", "joined norm", "fsdp"),
    "calls another unit": ("unused", "fsdp"),
    "goes forward twice": ("ddp", "unused", "fsdp", "wrapped", "units"),
    "clips alone": ("ddp", "unused", "joined norm"),
}


def check_mistake(seed):
    case = Mistake(seed)
    errors = [None] * case.world

    def run(rank):
        try:
            dist.init_process_group()
            (case.pipeline if case.mode in ("gpipe", "1f1b") else case.train)(rank)
            if dist.is_initialized():
                dist.destroy_process_group()  # with the error of what went on, if nobody was told
        except BaseException as error:
            errors[rank] = error
            raise

    start = time.monotonic()
    with contextlib.suppress(Exception, SystemExit):
        dist.spawn(run, nprocs=case.world, timeout=60, grace_period=20)
    took = time.monotonic() - start
    said = [f"{type(e).__name__}: {e}"[:300] for e in errors]
    assert took < SOON, f"{case} took {took:.0f} s: {said}"
    assert not any("internal error" in s for s in said), f"{case}: {said}"
    if not any(errors):
        quiet = HARMLESS.get(case.what, ())
        no_part = ("skips a unit", "calls another unit", "swaps the units", "skips backward")
        if case.mode in ("gpipe", "1f1b") and case.what == "gives another shape":
            no_part += (case.what,) * (0 < case.who < case.world - 1)  # only the outer stages are given something
        if case.what in no_part and case.mode in ("gpipe", "1f1b"):
            return  # it has none
        if case.option and case.what in ("skips a unit", "calls another unit") and case.mode in ("ddp", "joined norm"):
            return  # the first step of a static graph finds what is unused
        assert case.mode in quiet, f"{case}: no error"
        return
    if "has left the group" in str(errors[case.who]) and sum(e is not None for e in errors) == 1:
        return  # it alone made a call more than the others, after their last one
    for rank, e in enumerate(errors):
        if rank != case.who:
            assert e is not None, f"{case}: no error on rank {rank}: {said}"
            assert f"rank {case.who}" in str(e) or "ranks" in str(e), f"{case}: rank {rank} is not told who: {e}"
