"""Random compositions: stages of copies of parts, everything that a training may have, and another layout half-way."""

import contextlib
import copy
import random
import tempfile

import numpy as np
import plait
from parallel_cases import Case, close
from plait import distributed as dist
from plait import nn
from plait.distributed import checkpoint as dcp
from plait.distributed import pipelining
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from plait.distributed.fsdp import FSDPModule, fully_shard
from plait.distributed.pipelining import PipelineStage, SplitPoint
from plait.nn.parallel import DistributedDataParallel
from ranks import on_ranks

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
AXES = [(1, 1, 1), (1, 2, 1), (1, 1, 2), (1, 2, 2), (1, 3, 1), (1, 2, 3), (1, 3, 2), (2, 1, 1), (2, 2, 1), (2, 1, 2)]
AXES += [(2, 2, 2), (3, 1, 1), (3, 2, 1), (3, 1, 2)]
SCHEDULES = {"GPipe": 1, "1F1B": 1, "Interleaved1F1B": 2, "InterleavedZeroBubble": 2, "ZBVZeroBubble": 2}


class Composition:
    """How a training is laid out: stages, copies of each, parts of each copy."""

    def __init__(self, rng, case):
        self.places, self.copies, self.parts = rng.choice(AXES)
        self.world = self.places * self.copies * self.parts
        self.schedule = rng.choice(list(SCHEDULES))
        self.each = SCHEDULES[self.schedule]
        if self.places * self.each > len(case.blocks) + 2:
            self.schedule, self.each = "1F1B", 1
        if self.places > len(case.blocks) + 2:
            self.places, self.world = 1, self.copies * self.parts
        self.staged = self.places > 1 or (rng.random() < 0.2 and self.each == 1)
        self.sharded = self.parts > 1 or rng.random() < 0.3
        self.units = self.sharded and rng.random() < 0.5
        self.options = {"reshard_after_forward": rng.choice([None, True, False])}
        self.copier = {"bucket_cap_mb": rng.choice([None, 1e-4]), "gradient_as_bucket_view": rng.random() < 0.3}
        self.copier["static_graph"] = rng.random() < 0.2
        self.unsynchronised, self.set_to_none = rng.random() < 0.5, rng.random() < 0.7
        self.micro = rng.randint(1, 3)

    def __repr__(self):
        stages = f"{self.schedule} {self.places} x {self.each} of " if self.staged else ""
        return f"{stages}{self.copies} copies of {self.parts} parts{', units' * self.units}{', sharded' * self.sharded}"

    def mesh(self):
        return dist.init_device_mesh("cpu", (self.places, self.copies, self.parts), mesh_dim_names=("s", "c", "p"))

    def divide(self, module, mesh):
        if self.sharded:
            both = mesh["c", "p"] if self.copies > 1 else mesh["p"]
            for layer in module if self.units else ():
                fully_shard(layer, mesh=both, **self.options)
            return fully_shard(module, mesh=both, **self.options)
        if self.copies > 1 and any(p.requires_grad for p in module.parameters()):
            return DistributedDataParallel(module, process_group=mesh["c"].get_group(), **self.copier)
        return module


class Trained:
    """A rank's side of a training: its modules, its part of the batch, its optimiser and what goes with it."""

    def __init__(self, plan, layout, rank):
        self.plan, self.layout, case = plan, layout, plan.case
        self.parts = 1 if layout is None else layout.copies * layout.parts
        self.part, self.first, self.last, self.schedule = 0, True, True, None
        if layout is None:
            self.modules = [plan.model()]
        else:
            mesh = layout.mesh()
            place = mesh["s"].get_local_rank()
            self.part = mesh["c"].get_local_rank() * layout.parts + mesh["p"].get_local_rank()
            if layout.staged:
                self.stages(mesh, place, rank)
            else:
                self.modules = [layout.divide(plan.model(), mesh)]
        self.opts = {}
        for m in self.modules:
            if params := [p for p in m.parameters() if p.requires_grad]:
                self.opts[m] = getattr(plait.optim, case.optimizer)(params, lr=0.01)
        self.rates = [plan.scheduler(opt) for opt in self.opts.values()]
        self.scaler = plait.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2) if plan.scaled else None
        self.average = [shard(p, p.detach().clone()) for p in self.parameters()]

    def stages(self, mesh, place, rank):
        layout, plan = self.layout, self.plan
        count, whole = layout.places * layout.each, plan.model()
        x, _ = plan.batch(0, 0, 1)
        cuts = {str(i): SplitPoint.BEGINNING for i in range(1, count)}
        pipe = pipelining.pipeline(whole, (x[:1],), split_spec=cuts)
        cls = pipelining.get_schedule_class(layout.schedule)
        made = []
        for i, r in enumerate(pipelining._schedule.placement(cls._name, layout.places, layout.each)):
            if r == place:
                module = layout.divide(pipe.get_stage_module(i).to(f"cpu:{rank}"), mesh)
                made.append(PipelineStage(module, i, count, f"cpu:{rank}", group=mesh["s"].get_group()))
        self.modules = [s.submod for s in made]
        self.first, self.last = any(s.is_first for s in made), any(s.is_last for s in made)
        micro = layout.places * min(layout.micro, plan.rows // (self.parts * layout.places))
        self.schedule = cls(made if SCHEDULES[layout.schedule] > 1 else made[0], micro, self.loss, scale_grads=False)

    def parameters(self):
        return [p for m in self.modules for p in m.parameters() if p.requires_grad]

    def loss(self, out, y):
        value = (out - nn.functional.one_hot(y, 7).double()).square().sum() / self.total * self.parts
        if self.plan.poison == self.at and self.part == 0:
            value = value * float("inf")
        return value if self.scaler is None else self.scaler.scale(value)

    def step(self, step):
        plan, self.at = self.plan, step
        for opt in self.opts.values():
            opt.zero_grad(set_to_none=self.layout is None or self.layout.set_to_none)
        for k in range(plan.case.passes):
            x, y = plan.batch(step * plan.case.passes + k, self.part, self.parts)
            self.total = plan.count
            with self.synchronised(k == plan.case.passes - 1):
                if self.schedule is not None:
                    self.schedule.step(*(x,) * self.first, **{"target": y} if self.last else {})
                else:
                    self.loss(self.modules[0](x), y).backward()
        if self.scaler is not None:
            self.scaler.scale(plait.ones(()))
            for opt in self.opts.values():
                self.scaler.unscale_(opt)
        if plan.case.clip:
            self.clip()
        for opt in self.opts.values():
            if self.scaler is not None:
                self.scaler.step(opt)
            else:
                opt.step()
        if self.scaler is not None and self.opts:
            self.scaler.update()
        for rate in self.rates:
            rate.step()
        with plait.no_grad():
            for a, p in zip(self.average, self.parameters(), strict=True):
                a.lerp_(p, 0.25)

    def clip(self):
        case = self.plan.case
        if self.schedule is not None:
            self.schedule.clip_grad_norm_(case.clip, case.norm)
        else:
            nn.utils.clip_grad_norm_(self.modules[0].parameters(), case.clip, case.norm)

    @contextlib.contextmanager
    def synchronised(self, last):
        if last or self.layout is None or not self.layout.unsynchronised:
            yield
            return
        with contextlib.ExitStack() as stack:
            for m in self.modules:
                if isinstance(m, DistributedDataParallel):
                    stack.enter_context(m.no_sync())
                elif isinstance(m, FSDPModule):
                    m.set_requires_gradient_sync(False)
            yield
        for m in self.modules:
            if isinstance(m, FSDPModule):
                m.set_requires_gradient_sync(True)

    def state(self):
        state = {"model": {}, "average": {}, "optim": {}}
        for m in self.modules:
            state["model"].update({n.removeprefix("module."): v for n, v in m.state_dict().items()})
            if m in self.opts:
                state["optim"].update(get_optimizer_state_dict(m, self.opts[m], options=FLAT))
        names = [n.removeprefix("module.") for m in self.modules for n, p in m.named_parameters() if p.requires_grad]
        state["average"] = dict(zip(names, self.average, strict=True))
        return state

    def load(self, state, rest):
        for m in self.modules:
            own = m.module if isinstance(m, DistributedDataParallel) else m
            own.load_state_dict({k: state["model"][k] for k in own.state_dict()})
            if m in self.opts:
                mine = {n.removeprefix("module.") for n, p in m.named_parameters() if p.requires_grad}
                part = {
                    k: v for k, v in state["optim"].items() if any(k.split(".", 1)[1].startswith(n + ".") for n in mine)
                }
                set_optimizer_state_dict(m, self.opts[m], part, options=FLAT)
        for rate in self.rates:
            rate.load_state_dict(rest["lr"])
        if self.scaler is not None:
            self.scaler.load_state_dict(rest["scaler"])

    def values(self):
        out = {}
        for m in self.modules:
            for n, p in m.named_parameters():
                out[n.removeprefix("module.")] = whole(p)
        return out


def shard(p, t):
    return p._part(t) if hasattr(p, "_part") else t


def whole(t):
    return (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().numpy().copy()


class Plan:
    def __init__(self, seed):
        rng = random.Random(f"composed {seed}")
        self.case = case = Case("composed", seed)
        case.rows, case.world, case.branch, case.shifted, case.normed, case.hook = [12], 1, False, False, False, ""
        self.rows = rng.choice([12, 13, 17, 18])
        self.layouts = [Composition(rng, case) for _ in range(rng.choice([1, 2, 2]))]
        if any(c.units or c.staged for c in self.layouts):
            case.tied = case.shared = False
        self.seed, self.steps = seed, rng.randint(1, 3)
        self.scaled = rng.random() < 0.4
        self.poison = rng.randrange(2 * self.steps) if self.scaled and rng.random() < 0.5 else None
        self.decay = rng.choice(["StepLR", "ExponentialLR", "CosineAnnealingLR", "OneCycleLR"])

    def __repr__(self):
        said = {n: v for n, v in vars(self).items() if n != "case"}
        case = {n: getattr(self.case, n) for n in ("optimizer", "passes", "clip", "norm", "again", "frozen", "tied")}
        return ", ".join(f"{n} {v}" for n, v in {**said, **case}.items())

    def model(self):
        return self.case.model()

    def scheduler(self, opt):
        sched = plait.optim.lr_scheduler
        return {
            "StepLR": lambda: sched.StepLR(opt, 1, 0.5),
            "ExponentialLR": lambda: sched.ExponentialLR(opt, 0.9),
            "CosineAnnealingLR": lambda: sched.CosineAnnealingLR(opt, 5),
            "OneCycleLR": lambda: sched.OneCycleLR(opt, 0.02, total_steps=10, cycle_momentum=False),
        }[self.decay]()

    def batch(self, number, part, parts):
        """Returns a part of a batch: the first ones have a row more, where it does not divide."""
        rng = np.random.default_rng((self.seed, number))
        x, y = rng.integers(0, 7, (self.rows, 3)), rng.integers(0, 7, (self.rows, 3))
        self.count = y.size
        mine = np.array_split(np.arange(self.rows), parts)[part]
        return plait.tensor(x[mine]), plait.tensor(y[mine])


def check_composed(seed):
    plan = Plan(seed)
    about = str(plan)
    plait.set_default_dtype(plait.float64)
    try:
        alone = Trained(plan, None, 0)
        for step in range(plan.steps * len(plan.layouts)):
            alone.step(step)
        want = alone.values()
        names = [n for n, p in alone.modules[0].named_parameters() if p.requires_grad]
        averages = {n: whole(a) for n, a in zip(names, alone.average, strict=True)}
        rest = {}
        with tempfile.TemporaryDirectory() as folder:
            for number, layout in enumerate(plan.layouts):

                def run(rank, number=number, layout=layout, rest=rest):
                    plait.set_default_dtype(plait.float64)
                    t = Trained(plan, layout, rank)
                    if number:
                        with plait.no_grad():
                            for p in t.parameters():
                                p.add_(1.0)
                        state = t.state()
                        dcp.load(state, checkpoint_id=folder)
                        t.load(state, rest)
                    for step in range(number * plan.steps, (number + 1) * plan.steps):
                        t.step(step)
                    if number < len(plan.layouts) - 1:
                        dcp.save(t.state(), checkpoint_id=folder)
                    more = {}
                    if t.rates:
                        more["lr"] = copy.deepcopy(t.rates[0].state_dict())
                    if t.scaler is not None:
                        more["scaler"] = t.scaler.state_dict()
                    got = [
                        n.removeprefix("module.") for m in t.modules for n, p in m.named_parameters() if p.requires_grad
                    ]
                    return t.values(), dict(zip(got, map(whole, t.average), strict=True)), more

                results = on_ranks(layout.world, run)
                rest = {k: v for r in results for k, v in r[2].items()}
        for rank, (got, average, _) in enumerate(results):
            close(got, {n: want[n] for n in got}, 1e-8, f"{about}, rank {rank}")
            close(average, {n: averages[n] for n in average}, 1e-8, f"average of {about}, rank {rank}")
        assert set().union(*(r[0] for r in results)) == set(want)
    except BaseException as error:
        error.add_note(about)
        raise
    finally:
        plait.set_default_dtype(plait.float32)
