"""Ranks and stages on GPUs from Python."""

from __future__ import annotations

from pathlib import Path

from gpus import run


def test_pipelines_over_gpus_and_cpu() -> None:
    run(
        """
        from plait import nn
        from plait.distributed import pipelining

        def model():
            plait.manual_seed(5)
            first, last = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
            last.weight = first.weight
            return nn.Sequential(first, nn.Sequential(nn.LayerNorm(4), nn.Tanh()), nn.Linear(4, 4), last)

        x, y, m = plait.randn(10, 4), plait.randn(10, 4), model()
        want = nn.functional.mse_loss(m(x), y)
        want.backward()
        for name in pipelining.schedule_names():
            for devices in (["cpu:0", "gpu:0"], ["gpu:0", "cpu:1"], ["gpu:0", "gpu:1"], ["gpu:0", "gpu:0"]):
                p = plait.Pipeline(model(), devices, 4, name, nn.MSELoss())
                loss, _ = p.step(x, y)
                assert abs(loss.item() - want.item()) < 1e-5
                for a, b in zip(p.parameters(), m.parameters(), strict=True):
                    assert (a.grad.to("cpu:0") - b.grad).abs().max() < 1e-5, (name, devices)
                spans = p.timeline().spans
                assert len(spans) == str(p.schedule(4)).count(",") + 2, name
                assert abs(p.evaluate(x, y)[0].item() - want.item()) < 1e-5
        """,
        PLAIT_SOFTWARE_GPU="2",
    )


def test_stages_of_ranks_on_gpus() -> None:
    run(
        """
        from plait import distributed as dist, nn
        from plait.distributed import pipelining

        def model():
            plait.manual_seed(3)
            first, last = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
            last.weight = first.weight
            return nn.Sequential(first, nn.Sequential(nn.LayerNorm(4), nn.Tanh()), nn.Linear(4, 4), last)

        x, y, whole = plait.randn(10, 4), plait.randn(10, 4), model()
        nn.functional.mse_loss(whole(x), y).backward()
        want = {n: p.grad for n, p in whole.named_parameters(remove_duplicate=False)}
        begin = pipelining.SplitPoint.BEGINNING
        for cls, cuts in ((pipelining.Schedule1F1B, "2"), (pipelining.ScheduleZBVZeroBubble, "123")):
            for devices in (["gpu:0", "gpu:1"], ["gpu:0", "gpu:0"], ["cpu:0", "gpu:1"]):

                def train(rank):
                    dist.init_process_group()
                    pipe = pipelining.pipeline(model().to("cpu:0"), (x[:1],), split_spec=dict.fromkeys(cuts, begin))
                    mine = [rank] if pipe.num_stages == 2 else [rank, 3 - rank]
                    stages = [pipe.build_stage(i, devices[rank]) for i in mine]
                    schedule = cls(stages if len(stages) > 1 else stages[0], 4, nn.MSELoss())
                    args = (x,) if stages[0].is_first else ()
                    schedule.step(*args, **({"target": y} if stages[-1].is_last else {}))
                    for s in stages:
                        for n, p in s.submod.named_parameters():
                            assert (p.grad.to("cpu:0") - want[n]).abs().max() < 1e-6, (cls, devices, n)

                dist.spawn(train, nprocs=2)
        """,
        PLAIT_SOFTWARE_GPU="2",
    )


def test_ranks_on_a_gpu() -> None:
    assert run("""
        from plait import distributed as dist, nn
        from plait.distributed.algorithms.ddp_comm_hooks import default_hooks

        def train(rank):
            dist.init_process_group()
            plait.manual_seed(0)
            m = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).to(plait.get_default_device()))
            m.register_comm_hook(None, default_hooks.bf16_compress_hook)
            opt = plait.optim.SGD(m.parameters(), lr=0.1)
            with m.join():
                for _ in range(3 + rank):
                    opt.zero_grad()
                    x = plait.randn(8, 4)
                    (m(x) - x.sum(1, keepdim=True)).square().mean().backward()
                    opt.step()
            w = [plait.zeros(1, 4) for _ in range(2)]
            dist.all_gather(w, m.module.weight.detach())
            assert w[0].equal(w[1])

        for devices in (["gpu:0"], ["gpu:0", "cpu:0"]):
            dist.spawn(train, nprocs=2, devices=devices)
        print("done")
    """).split() == ["done"]


def test_hooks_in_python_on_gpus() -> None:
    assert run(
        """
        import time
        from plait import distributed as dist, nn

        def future(state, bucket):
            return dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, async_op=True).get_future()

        def then(state, bucket):
            half = bucket.buffer().to(plait.bfloat16)
            made = dist.all_reduce(half, dist.ReduceOp.AVG, async_op=True).get_future()
            return made.then(lambda f: f.value()[0].to(plait.float32))

        def waits(state, bucket):
            t = bucket.buffer()
            assert t.sum().isfinite().item()
            dist.all_reduce(t, dist.ReduceOp.AVG)
            return t

        def gathers(state, bucket):
            parts = [plait.zeros_like(bucket.buffer()) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, bucket.buffer())
            return sum(parts) / len(parts)

        def train(rank, hook, late, got):
            dist.init_process_group()
            plait.manual_seed(0)
            layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3)]
            m = nn.Sequential(*layers, nn.Linear(16, 1)).to(plait.get_default_device())
            m = nn.parallel.DistributedDataParallel(m, bucket_cap_mb=0.001)
            if hook is not None:
                m.register_comm_hook(None, hook)
            opt = plait.optim.SGD(m.parameters(), lr=0.1)
            with m.join():
                for step in range(3 + rank):
                    opt.zero_grad()
                    x = (plait.arange(64.0).reshape(4, 16) * (rank + 1) + step).sin().to(plait.get_default_device())
                    loss = (m(x) - x.sum(1, keepdim=True)).square().mean()
                    if rank == late:
                        time.sleep(0.002)
                    loss.backward()
                    opt.step()
            got[rank] = [p.detach().cpu() for p in m.parameters()]

        def trained(hook, n, devices):
            got = [None] * n
            dist.spawn(train, (hook, n - 1, got), nprocs=n, devices=devices)
            return got

        for n in (2, 3):
            want = trained(None, n, ["cpu:0"])[0]
            for devices in (["gpu:0"], ["gpu:0", "cpu:0"], ["gpu:0", "gpu:1"]):
                for hook in (future, then, waits, gathers):
                    for mine in trained(hook, n, devices):
                        for a, b in zip(mine, want, strict=True):
                            assert (a - b).abs().max() < (2e-2 if hook is then else 1e-5), (n, devices, hook)
        print("done")
    """,
        PLAIT_SOFTWARE_GPU="2",
    ).split() == ["done"]


def test_parameters_divided_over_ranks_on_gpus(tmp_path: Path) -> None:
    assert run(
        f"""
        from plait import distributed as dist, nn
        from plait.distributed import checkpoint, fsdp

        def steps(m, rank, world, count):
            opt = plait.optim.AdamW(m.parameters(), lr=0.05)
            losses = []
            for i in range(count):
                x = (plait.arange(48.0).reshape(8, 6) + i).sin().chunk(world)[rank].to(plait.get_default_device())
                loss = m(x).square().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            return losses

        def model():
            plait.manual_seed(0)
            layers = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3))
            return layers.to(plait.get_default_device())

        want = steps(model(), 0, 1, 4)

        def train(rank):
            dist.init_process_group()
            m = model()
            fsdp.fully_shard(m[0])
            fsdp.fully_shard(m)
            mean = plait.tensor(steps(m, rank, 2, 4))
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            assert max(abs(a - b) for a, b in zip(mean.tolist(), want)) < 1e-5, (mean.tolist(), want)
            checkpoint.save({{"m": m}}, checkpoint_id={str(tmp_path)!r})

        for devices in (["gpu:0", "gpu:1"], ["gpu:0", "cpu:0"], ["gpu:0"]):
            dist.spawn(train, nprocs=2, devices=devices)
            m = model()
            steps(m, 0, 1, 4)
            other = model()
            checkpoint.load({{"m": other}}, checkpoint_id={str(tmp_path)!r})
            for a, b in zip(m.parameters(), other.parameters()):
                assert (a - b).abs().max() < 1e-4
        print("done")
    """,
        PLAIT_SOFTWARE_GPU="2",
    ).split() == ["done"]


def test_devices_without_an_index_are_the_ranks_own() -> None:
    assert run(
        """
        from plait import distributed as dist, nn
        from plait.distributed import fsdp

        def train(rank, chooses):
            if chooses:  # as scripts for a GPU and process each begin
                plait.cuda.set_device(rank)
            dist.init_process_group("nccl")
            mine = plait.device("gpu", rank)
            assert plait.cuda.current_device() == rank
            m = nn.Linear(6, 3).cuda()
            x = plait.ones(2, 6).to("cuda", non_blocking=True)
            assert {m.weight.device, x.device, plait.zeros(1, device="cuda").device} == {mine}, rank
            with plait.cuda.device(1 - rank):
                assert x.cuda().device == plait.device("gpu", 1 - rank)
            assert x.cuda().device == mine
            assert x.to("cpu", non_blocking=True).tolist() == [[1.0] * 6] * 2
            m = fsdp.FSDP(m)
            opt = plait.optim.Adam(m.parameters())
            m(x).sum().backward()
            opt.step()
            full, sharded = fsdp.StateDictType.FULL_STATE_DICT, fsdp.StateDictType.SHARDED_STATE_DICT
            for kind, config, where in (
                (full, None, "cpu"),
                (full, fsdp.FullOptimStateDictConfig(offload_to_cpu=False), mine),
                (sharded, None, "cpu"),
                (sharded, fsdp.ShardedOptimStateDictConfig(offload_to_cpu=False), mine),
            ):
                with fsdp.FSDP.state_dict_type(m, kind, None, config):
                    state = fsdp.FSDP.optim_state_dict(m, opt)
                assert state["state"]["weight"]["exp_avg"].device == plait.device(where), (kind, config)
                again = plait.optim.Adam(m.parameters())
                again.load_state_dict(fsdp.FSDP.optim_state_dict_to_load(m, again, state))
                for p in m.parameters():
                    assert again.state[p]["exp_avg"].to_local().tolist() == opt.state[p]["exp_avg"].to_local().tolist()
            with fsdp.FSDP.state_dict_type(m, sharded, fsdp.ShardedStateDictConfig(offload_to_cpu=True)):
                shard = m.state_dict()["weight"]
            assert shard.device == plait.device("cpu")
            assert shard.full_tensor().cpu().equal(m.weight.full_tensor().cpu())
            host = fsdp.FSDP(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)).to("cpu:0"), device_id=rank)
            assert {t.device for t in (*host.parameters(), *host.buffers())} == {mine}
            assert host(plait.ones(2, 6, device="cpu:0")).device == mine  # as inputs of the outermost unit are moved
            away = fsdp.fully_shard(nn.Linear(6, 3).cuda(), offload_policy=fsdp.CPUOffloadPolicy())
            opt = plait.optim.SGD(away.parameters(), lr=0.1)
            before = away.bias.full_tensor().cpu()
            away(x).sum().backward()
            opt.step()
            assert {p.device for p in away.parameters()} == {plait.device("cpu")}
            assert (before - away.bias.full_tensor().cpu()).sub(0.2).abs().max() < 1e-6

        dist.spawn(train, (False,), nprocs=2, devices=["gpu:0", "gpu:1"])
        dist.spawn(train, (True,), nprocs=2)
        assert plait.cuda.current_device() == 0
        print("done")
    """,
        PLAIT_SOFTWARE_GPU="2",
    ).split() == ["done"]
