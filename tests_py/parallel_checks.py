"""Random cases on many devices, against one device on the joined batch."""

import random

import numpy as np
import plait
from parallel_cases import (
    LONG,
    WORDS,
    Attention,
    Case,
    Convolution,
    Residual,
    Whole,
    alone,
    close,
    followed,
    gradients,
    values,
)
from plait import nn
from plait.distributed.algorithms.ddp_comm_hooks import default_hooks
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.fsdp import FSDP, CPUOffloadPolicy, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from plait.nn.parallel import DataParallel, DistributedDataParallel
from ranks import on_ranks

SINGLE, HALF = 5e-5, 3e-3  # how far gradients that were rounded may be off: about five times what is seen


def divided(case, rng):
    """Returns the case's model, divided in a random way, and how to leave out the synchronisation."""
    m = Whole(case)
    if case.hook and rng.random() < 0.5:
        case.hooks(m)
        hooked = True
    else:
        hooked = False
    lowered = MixedPrecisionPolicy(param_dtype=plait.float32) if rng.random() < 0.2 else None
    offload = CPUOffloadPolicy() if rng.random() < 0.15 else None
    reshard = rng.choice([None, True, False])
    options = {"reshard_after_forward": reshard, "mp_policy": lowered}
    if case.world == 4 and rng.random() < 0.5:
        options["mesh"] = init_device_mesh("cpu", (2, 2))
    if offload is not None:
        options["offload_policy"] = offload
    how = case.how
    if how == "policy":
        strategy = rng.choice([ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP])
        linear = nn.LayerNorm if Attention in case.blocks else nn.Linear  # attention uses the weights of its own
        policy = rng.choice([{linear}, {Residual, Attention, Convolution}, {linear, nn.LayerNorm, nn.Embedding}])
        lowered = None
        mesh = options.get("mesh")
        if mesh is not None:
            strategy = ShardingStrategy.HYBRID_SHARD
        m = FSDP(m, auto_wrap_policy=policy, sharding_strategy=strategy, device_mesh=mesh)
    else:
        blocks = list(m.layers)
        if how in ("layers", "both"):
            for layer in m.modules():
                if isinstance(layer, nn.Linear | nn.LayerNorm) and type(layer).__name__ in ("Linear", "LayerNorm"):
                    fully_shard(layer, **options)
        if how in ("blocks", "both"):
            for b in blocks:
                fully_shard(b, **options)
        if how == "group" and len(blocks) > 2:
            fully_shard([blocks[-2], blocks[-1]], **options)
        fully_shard(m, **options)
    if not hooked:
        case.hooks(m)

    class Unsynchronised:
        def __enter__(self):
            m.set_requires_gradient_sync(False)

        def __exit__(self, *_):
            m.set_requires_gradient_sync(True)

    return m, Unsynchronised if rng.random() < 0.7 else None, lowered is not None, how


def check_fsdp(seed):
    case = Case("fsdp", seed)

    def run(rank):
        plait.set_default_dtype(plait.float64)
        m, unsynchronised, lowered, how = divided(case, random.Random(seed))
        steps = []
        norms = case.train(
            m, rank, case.world, unsynchronised, ready=lambda: steps.append(gradients(m)) if lowered else None
        )
        return steps, norms, {n: p.full_tensor().detach().numpy() for n, p in m.named_parameters()}, how

    same_as_alone(case, on_ranks(case.world, run), SINGLE)


def same_as_alone(case, ranks, tol):
    """Compares norms and values of all ranks with one device's, which follows the gradients of `steps`, if any."""
    steps, _, _, how = ranks[0]
    want_norms, want = followed(case, steps, tol, how) if steps else alone(case)
    for _, norms, got, _ in ranks:
        np.testing.assert_allclose(norms, want_norms, rtol=1e-8, atol=1e-8, err_msg=f"norms of {how}")
        close(got, want, 1e-8, how)


def summed(group, bucket):
    """A hook of one's own."""
    work = plait.distributed.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0] / plait.distributed.get_world_size(group))


def averaging(case, d, rng):
    """Gives DDP a random hook; returns whether it rounds the gradients."""
    name = rng.choice(["", "", "engine", "own", "half"])
    if name == "half" and not case.weighted:
        d.register_comm_hook(None, default_hooks.fp16_compress_hook)
        return True
    if name in ("engine", "own") and not case.weighted:
        d.register_comm_hook(None, default_hooks.allreduce_hook if name == "engine" else summed)
    return False


def check_ddp(seed):
    case = Case("ddp", seed)

    def run(rank):
        plait.set_default_dtype(plait.float64)
        rng = random.Random(seed)
        m = Whole(case)
        m = nn.SyncBatchNorm.convert_sync_batchnorm(m)
        case.hooks(m)
        d = DistributedDataParallel(
            m,
            bucket_cap_mb=rng.choice([None, 1e-4, 1e-5]),
            find_unused_parameters=rng.random() < 0.3 or case.branch,
            gradient_as_bucket_view=rng.random() < 0.3,
            static_graph=rng.random() < 0.2 and not case.branch,
            delay_all_reduce=rng.random() < 0.2,
            weighted=case.weighted,
        )
        halved, steps = averaging(case, d, rng), []
        unsynchronised = d.no_sync if rng.random() < 0.7 else None
        norms = case.train(
            d, rank, case.world, unsynchronised, ready=lambda: steps.append(gradients(m)) if halved else None
        )
        return steps, norms, values(m), "ddp"

    same_as_alone(case, on_ranks(case.world, run), HALF)


def check_data(seed):
    case = Case("data", seed)
    norms, want = alone(case)
    plait.set_default_dtype(plait.float64)
    try:
        m = Whole(case)
        case.hooks(m)
        devices = [f"cpu:{case.rng.randrange(3)}" for _ in range(case.rng.randint(1, 4))]
        m = m.to(devices[0])
        got = case.train(DataParallel(m, devices))
        np.testing.assert_allclose(got, norms, rtol=1e-8, atol=1e-8)
        close(values(m.cpu()), want, 1e-8, f"data {devices}")
    finally:
        plait.set_default_dtype(plait.float32)


def check_pipeline(seed):
    case = Case("pipeline", seed)
    rng = random.Random(seed)
    plait.set_default_dtype(plait.float64)
    try:
        reference, m = case.model(), case.model()
        stages = rng.randint(1, len(m))
        schedule = rng.choice(["gpipe", "1f1b", "zb-h1"])
        weight = plait.rand(WORDS) + 0.5 if rng.random() < 0.5 else None
        loss = nn.CrossEntropyLoss(weight)
        pipe = plait.Pipeline(
            nn.Sequential(*m, Classes()),
            [f"cpu:{i}" for i in range(stages)],
            max(stages, rng.randint(1, 4)),
            schedule,
            loss,
        )
        rows = max(sum(case.rows), stages)
        opts = [
            getattr(plait.optim, case.optimizer)([p for p in x.parameters() if p.requires_grad], lr=0.01)
            for x in (reference, m)
        ]
        for step in range(case.steps):
            data = np.random.default_rng((seed, step))
            x, y = data.integers(0, WORDS, (rows, LONG)), data.integers(0, WORDS, (rows, LONG))
            if case.ignore:
                y[data.random((rows, LONG)) < 0.3] = -100
            x, y = plait.tensor(x), plait.tensor(y)
            for o in opts:
                o.zero_grad()
            want = loss.to("cpu:0")(Classes()(reference(x)), y)
            want.backward()
            loss.to(f"cpu:{stages - 1}")
            got, _ = pipe.step(x, y)
            np.testing.assert_allclose(got.item(), want.item(), rtol=1e-9)
            for o in opts:
                o.step()
        close(values(m), values(reference), 1e-8, schedule)
    finally:
        plait.set_default_dtype(plait.float32)


class Classes(nn.Module):
    """Puts classes where losses want them."""

    def forward(self, x):
        return x.transpose(1, 2)
