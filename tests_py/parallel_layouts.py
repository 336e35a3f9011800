"""Random pipelines over ranks, and random ways from one layout of a training to another through a checkpoint."""

import random
import tempfile

import numpy as np
import plait
from parallel_cases import LONG, WIDE, Case, Residual, close, values
from plait import distributed as dist
from plait import nn
from plait.distributed import checkpoint as dcp
from plait.distributed import pipelining
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from plait.distributed.fsdp import fully_shard
from plait.distributed.pipelining import PipelineStage, SplitPoint
from plait.nn.parallel import DistributedDataParallel
from ranks import on_ranks

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
SCHEDULES = {  # and how many stages a rank has
    "GPipe": (1, 1),
    "1F1B": (1, 1),
    "Interleaved1F1B": (2, 3),
    "LoopedBFS": (2, 3),
    "InterleavedZeroBubble": (1, 2),
    "ZBVZeroBubble": (2, 2),
}


def layers(count, seed):
    """Returns a model of so many layers, each with parameters."""
    plait.manual_seed(seed)
    rng = random.Random(seed)
    made = [rng.choice([Residual, lambda _: nn.Linear(WIDE, WIDE, bias=False)])(rng) for _ in range(count)]
    return nn.Sequential(*made).double()


def check_stages(seed):
    """Pipelines of ranks, of which several may share the batch by DDP or FSDP."""
    rng = random.Random(f"stages {seed}")
    copies = rng.choice([1, 1, 2])
    places = rng.randint(1, 4 // copies)
    name = rng.choice(list(SCHEDULES))
    each = rng.randint(*SCHEDULES[name])
    count, micro = places * each, places * rng.randint(1, 3)
    way = rng.choice(["ddp", "fsdp"]) if copies > 1 else rng.choice(["", "", "ddp", "fsdp"])
    steps, rows, clip = rng.randint(1, 3), micro + rng.randint(0, 3), rng.choice([None, 0.02])
    optimizer = rng.choice(["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
    options = {"reshard_after_forward": rng.choice([None, True, False])}
    units = rng.random() < 0.5
    data = np.random.default_rng(seed)
    x, y = (plait.tensor(data.standard_normal((copies * rows, LONG, WIDE))) for _ in "xy")
    about = f"{name}, {places} places x {each} stages x {copies} copies by {way}, {micro} micro-batches, {options}"

    reference = layers(count, seed)
    opt = getattr(plait.optim, optimizer)(reference.parameters(), lr=0.01)
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.mse_loss(reference(x), y).backward()
        if clip:
            nn.utils.clip_grad_norm_(reference.parameters(), clip)
        opt.step()
    got = {}

    def run(rank):
        cls = pipelining.get_schedule_class(name)
        mesh = dist.init_device_mesh("cpu", (places, copies), mesh_dim_names=("stages", "copies"))
        place, part = mesh["stages"].get_local_rank(), mesh["copies"].get_local_rank()
        whole, stages = layers(count, seed), []
        spec = {str(i): SplitPoint.BEGINNING for i in range(1, count)}
        pipe = pipelining.pipeline(whole.to("cpu:0"), (x[:1],), split_spec=spec)
        for i, r in enumerate(pipelining._schedule.placement(cls._name, places, each)):
            if r != place:
                continue
            module = pipe.get_stage_module(i).to(f"cpu:{rank}")
            if way == "fsdp":
                for layer in module if units else ():
                    fully_shard(layer, mesh=mesh["copies"], **options)
                fully_shard(module, mesh=mesh["copies"], **options)
            elif way == "ddp":
                module = DistributedDataParallel(module, process_group=mesh["copies"].get_group())
            stages.append(PipelineStage(module, i, count, f"cpu:{rank}", group=mesh["stages"].get_group()))
        schedule = cls(stages[0] if SCHEDULES[name] == (1, 1) else stages, micro, nn.MSELoss())
        opt = getattr(plait.optim, optimizer)([p for s in stages for p in s.submod.parameters()], lr=0.01)
        args = (x.split(rows)[part],) if any(s.is_first for s in stages) else ()
        target = {"target": y.split(rows)[part]} if any(s.is_last for s in stages) else {}
        for _ in range(steps):
            opt.zero_grad()
            schedule.step(*args, **target)
            if clip:
                schedule.clip_grad_norm_(clip)
            opt.step()
        for s in stages:
            for n, p in s.submod.named_parameters():
                full = p.full_tensor().detach() if way == "fsdp" else p.detach()
                got[n.removeprefix("module."), part] = full.numpy().copy()

    on_ranks(places * copies, run)
    want = values(reference)
    for part in range(copies):
        close({n: v for (n, at), v in got.items() if at == part}, want, 1e-9, about)


class Layout:
    """A way to hold a case's training: on one device, in copies, in parts, or in stages."""

    def __init__(self, rng, case):
        self.way = rng.choice(["one", "ddp", "fsdp", "units", "stages"])
        self.ranks = 1 if self.way == "one" else rng.randint(1, 4)
        self.rng, self.case = random.Random(rng.random()), case
        if self.way == "stages":
            self.ranks = min(self.ranks, len(case.blocks) + 2)

    def __repr__(self):
        return f"{self.way} on {self.ranks}"

    def make(self, rank, other=False):
        """Returns the rank's module, perhaps with other values, what makes a step on the batch, and the optimiser."""
        m = self.case.model()
        with plait.no_grad():
            for p in m.parameters():
                p.add_(float(other))
        if self.way == "units":
            for part in m:
                fully_shard(part)
        if self.way in ("fsdp", "units"):
            m = fully_shard(m)
        elif self.way == "ddp":
            m = DistributedDataParallel(m)
        step = self.step_alone
        if self.way == "stages":
            m, step = self.stage(m, rank)
        params = [p for p in m.parameters() if p.requires_grad]
        return m, step, getattr(plait.optim, self.case.optimizer)(params, lr=0.01) if params else None

    def step_alone(self, m, step):
        x, y, _ = self.case.batch(step, 0, self.case.rows[0])
        nn.functional.mse_loss(m(x), nn.functional.one_hot(y, 7).double()).backward()

    def stage(self, m, rank):
        spec = {str(i): SplitPoint.BEGINNING for i in range(1, self.ranks)}
        x, _, _ = self.case.batch(0, 0, self.case.rows[0])
        built = pipelining.pipeline(m, (x,), split_spec=spec).build_stage(rank, f"cpu:{rank}")
        schedule = pipelining.Schedule1F1B(built, self.ranks, nn.MSELoss())

        def step(_, number):
            x, y, _ = self.case.batch(number, 0, self.case.rows[0])
            target = {"target": nn.functional.one_hot(y, 7).double()} if built.is_last else {}
            schedule.step(*(x,) * built.is_first, **target)

        return built.submod, step


def check_reshard(seed):
    """A training goes on in another layout as it would have gone on in one device."""
    rng = random.Random(f"reshard {seed}")
    case = Case("reshard", seed)
    case.rows, case.ignore, case.normed, case.world = [12], False, False, 1
    saving, loading = Layout(rng, case), Layout(rng, case)
    if "units" in (saving.way, loading.way) or "stages" in (saving.way, loading.way):
        case.tied = case.shared = False
    before, after = rng.randint(1, 3), rng.randint(1, 2)

    def train(m, step, opt, first, last):
        for i in range(first, last):
            if opt is not None:
                opt.zero_grad()
            step(m, i)
            if opt is not None:
                opt.step()

    def state(m, opt):
        return {"model": m, "optim": get_optimizer_state_dict(m, opt, options=FLAT) if opt else {}}

    def double(fn):
        def run(rank):
            plait.set_default_dtype(plait.float64)
            try:
                return fn(rank)
            finally:
                plait.set_default_dtype(plait.float32)

        return run

    with tempfile.TemporaryDirectory() as folder:

        def save(rank):
            m, step, opt = saving.make(rank)
            train(m, step, opt, 0, before)
            dcp.save(state(m, opt), checkpoint_id=folder)

        def load(rank):
            m, step, opt = loading.make(rank, other=True)
            got = state(m, opt)
            dcp.load(got, checkpoint_id=folder)
            if opt is not None:
                set_optimizer_state_dict(m, opt, got["optim"])
            train(m, step, opt, before, before + after)
            out = {}
            for n, p in m.named_parameters():
                full = p.full_tensor().detach() if loading.way in ("fsdp", "units") else p.detach()
                out[n.removeprefix("module.")] = full.numpy().copy()
            return out

        on_ranks(saving.ranks, double(save))
        got = on_ranks(loading.ranks, double(load))

    def whole(_):
        m = case.model()
        params = [p for p in m.parameters() if p.requires_grad]
        opt = getattr(plait.optim, case.optimizer)(params, lr=0.01)
        train(m, saving.step_alone, opt, 0, before + after)
        return {n: p.detach().numpy().copy() for n, p in m.named_parameters()}

    want = double(whole)(0)
    for rank, part in enumerate(got):
        assert part, f"rank {rank} has nothing"
        close(part, {n: want[n] for n in part}, 1e-7, f"{saving} to {loading}, rank {rank}")
    assert set().union(*got) == set(want)
