"""The GPU from Python: in a process of its own, which sees the software adapter where there is no other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import plait
import pytest


def run(script: str, **env: str) -> str:
    """Runs a script in a new process and returns what it printed; without an adapter the test is skipped."""
    head = """
        import sys
        import plait
        if not plait.cuda.is_available():
            print("no adapter")
            sys.exit()
    """
    code = textwrap.dedent(head) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PLAIT_SOFTWARE_GPU": "1", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() == "no adapter":
        assert os.environ.get("CI") != "true", "CI has no adapter; apt-get install libvulkan1 mesa-vulkan-drivers"
        pytest.skip("no GPU and no software adapter; apt-get install libvulkan1 mesa-vulkan-drivers")
    return done.stdout


def test_without_a_gpu_the_reason_is_said() -> None:
    if plait.cuda.is_available():
        pytest.skip("there is a GPU")
    assert plait.cuda.device_count() == 0
    with pytest.raises(plait.DeviceError, match="there is no GPU: "):
        plait.zeros(2, device="gpu:0")


def test_tensors_on_a_gpu() -> None:
    run("""
        assert plait.cuda.device_count() >= 1
        properties = plait.cuda.get_device_properties()
        assert properties.name == plait.cuda.get_device_name() != ""
        assert properties.max_tensor_size >= 1 << 27 and properties.max_threads_per_workgroup >= 256, properties
        x = plait.arange(6, dtype=plait.float32, device="cuda").reshape(2, 3)
        assert x.device == plait.device("gpu:0"), x.device
        y = (x.T @ x).sum(0) * 2
        assert y.tolist() == (x.cpu().T @ x.cpu()).sum(0).mul(2).tolist()
        assert x.to(plait.bfloat16).float().cpu().tolist() == x.tolist()
        assert x[:, 1].argmax().item() == 1

        def message(fn, kind):
            try:
                fn()
            except kind as error:
                return str(error)
            raise AssertionError(f"no {kind} was raised")

        text = message(lambda: (x + plait.ones(2, 3)).tolist(), plait.DeviceError)
        assert "gpu:0" in text and "cpu:0" in text, text
        text = message(lambda: x.to(plait.float64), NotImplementedError)
        assert "float64 is not supported" in text, text
    """)


def test_several_devices_and_their_memory() -> None:
    run(
        """
        if plait.cuda.device_count() < 2:
            sys.exit()  # a single real GPU
        assert plait.device("gpu:1") == plait.device("cuda", 1)
        a, b = plait.ones(1000, device="gpu:0"), plait.ones(3, 1000, device="gpu:1")
        assert (a.to("gpu:1") + b).sum().item() == 6000
        old = plait.ones(2).type(plait.cuda.HalfTensor)
        assert isinstance(old, plait.cuda.HalfTensor) and not isinstance(old, plait.HalfTensor)
        assert old.type() == "plait.cuda.HalfTensor" and old.type("plait.FloatTensor").device.type == "cpu"
        assert plait.cuda.FloatTensor([1, 2]).device == plait.device("gpu:0")
        try:
            a + b
        except RuntimeError as error:
            assert "gpu:0" in str(error) and "gpu:1" in str(error), error
        else:
            raise AssertionError("tensors of two devices were added")
        held = plait.cuda.memory_allocated(1)
        c = plait.zeros(1 << 20, device="gpu:1")
        assert plait.cuda.memory_allocated(1) - held == 4 << 20
        assert plait.cuda.memory_reserved(1) >= plait.cuda.max_memory_allocated(1) >= plait.cuda.memory_allocated(1)
        del c
        assert plait.cuda.memory_allocated(1) == held
        assert plait.cuda.memory_allocated(0) < 1 << 20
        try:
            plait.zeros(1, device="gpu:99")
        except plait.DeviceError as error:
            assert "gpu:99 does not exist" in str(error), error
        else:
            raise AssertionError("there are a hundred GPUs")
        """,
        PLAIT_SOFTWARE_GPU="2",
    )


def test_memory_that_runs_out_is_an_error() -> None:
    run(
        """
        held = []
        try:
            while True:
                held.append(plait.zeros(1 << 22, device="gpu"))
        except MemoryError as error:
            assert "no room for 16777216 bytes" in str(error), error
        assert 0 < len(held) <= 16
        held.clear()
        assert plait.ones(1 << 22, device="gpu").sum().item() == 1 << 22
        """,
        PLAIT_GPU_MEMORY=str(256 << 20),
    )


def test_interrupts_during_long_waits() -> None:
    run("""
        import signal
        import threading

        if "llvmpipe" not in plait.cuda.get_device_name():
            sys.exit()  # a GPU has ended before the signal comes
        x = plait.eye(512, device="gpu")
        y = x
        for _ in range(20):
            y = x @ y
        threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
        try:
            y.sum().item()
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the wait was not interrupted")
        assert plait.ones(4, device="gpu").sum().item() == 4, "the device goes on"
    """)


def test_an_interrupted_program_ends_although_much_is_queued() -> None:
    run("""
        import signal
        import threading
        from plait import _core

        if "llvmpipe" not in plait.cuda.get_device_name():
            sys.exit()  # a GPU has done it all
        x = plait.ones(8, device="gpu")
        for _ in range(2000):  # of which many go to the GPU at once
            x = (x + x.sum()) / 9
        x.sum().item()
        x = plait.eye(256, device="gpu")
        threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
        try:
            while True:
                y = x @ x
        except KeyboardInterrupt:
            pass
        assert _core.bind_DevicesLeave() == 1, "the GPU was still at work after ten seconds"
    """)


NETWORKS = """
        from plait import nn
        from plait.nn import functional as F

        class Block(nn.Module):
            def __init__(self, before, width, stride):
                super().__init__()
                self.first = self.layer(before, width, 3, stride)
                self.second = self.layer(width, width, 3, 1)
                self.short = self.layer(before, width, 1, stride)

            def layer(self, before, width, size, stride):
                conv = nn.Conv2d(before, width, size, stride, size // 2, bias=False)
                return nn.Sequential(conv, nn.BatchNorm2d(width))

            def forward(self, x):
                return F.relu(self.second(F.relu(self.first(x))) + self.short(x))

        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(20, 8)
                self.lstm = nn.LSTM(8, 16, 2, batch_first=True)
                self.head = nn.Linear(16, 20)

            def forward(self, x):
                return self.head(self.lstm(self.embedding(x))[0]).flatten(0, 1)

        def images():
            stem = nn.Sequential(nn.Conv2d(3, 4, 7, 2, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
            model = nn.Sequential(stem, Block(4, 4, 1), Block(4, 8, 2), head)
            optimizer = plait.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
            return model, optimizer, plait.randn(4, 3, 24, 24), plait.randint(0, 5, (4,))

        def texts():
            model = Reader()
            optimizer = plait.optim.Adam(model.parameters(), lr=1e-2)
            return model, optimizer, plait.randint(0, 20, (3, 7)), plait.randint(0, 20, (21,))

        def train(make, device):
            plait.manual_seed(3)
            model, optimizer, x, y = make()
            model, x, y = model.to(device), x.to(device), y.to(device)
            losses, moved = [], []
            for _ in range(4):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.item())
                moved.append(plait.cuda.transfer_stats(device) if device != "cpu" else {})
            names = "to_device", "from_device", "to_device.bytes", "from_device.bytes"
            return losses, [[b.get(n, 0) - a.get(n, 0) for n in names] for a, b in zip(moved, moved[1:])]

        for make in images, texts:
            (cpu, _), (gpu, moved) = train(make, "cpu"), train(make, "gpu:0")
            assert all(abs(a - b) < 1e-3 for a, b in zip(cpu, gpu)), (cpu, gpu)
            assert moved == [[0, 1, 0, 4]] * 3, f"a step reads its loss and nothing else, got {moved}"
"""


def test_networks_train_with_one_number_read_a_step() -> None:
    run(NETWORKS)


def test_the_example_trains_as_on_the_cpu(tmp_path: Path) -> None:
    run("")  # skips without a GPU
    losses = []
    log = tmp_path / "losses.txt"
    for device in "cpu", "gpu":
        options = [
            "--steps",
            "6",
            "--batch",
            "2",
            "--context",
            "16",
            "--width",
            "16",
            "--layers",
            "1",
            "--heads",
            "2",
            "--dropout",
            "0.1",
            "--log",
            str(log),
        ]
        options += ["--characters", "20000", "--sample", "1", "--plot", str(tmp_path / "loss.png"), "--device", device]
        example = Path(__file__).parents[1] / "examples" / "train_gpt.py"
        done = subprocess.run(
            [sys.executable, str(example), *options],
            env={**os.environ, "PLAIT_SOFTWARE_GPU": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        found = re.search(r"validation loss ([\d.]+) -> ([\d.]+)", done.stdout)
        assert found, done.stdout
        losses.append([float(v) for v in (*found.groups(), *log.read_text().split())])
    assert losses[0] == pytest.approx(losses[1], abs=2e-3), "dropout too draws the same on both"
    assert losses[1][1] < losses[1][0]
    assert "to gpu (3,072 bytes of codes and targets) and read 6 (24 bytes of losses)" in done.stdout


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
                assert all(again.state[p]["exp_avg"].equal(opt.state[p]["exp_avg"]) for p in m.parameters())
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


def test_cudnn_benchmark_measures_products_and_keeps_the_choices(tmp_path: Path) -> None:
    script = """
        assert plait.backends.cudnn.benchmark is False
        plait.backends.cudnn.benchmark = True
        assert plait.backends.cudnn.benchmark is True
        x = plait.ones(64, 96, device="gpu")
        print((x @ x.T).sum().item())
    """
    assert run(script, XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path)) == "393216.0\n"
    assert len(list(tmp_path.rglob("tuning/*.json"))) == 1


def test_mixed_precision_with_a_scaler() -> None:
    run("""
        plait.manual_seed(0)
        net = plait.nn.Sequential(plait.nn.Linear(4, 16), plait.nn.Tanh(), plait.nn.Linear(16, 2)).cuda()
        optimizer = plait.optim.AdamW(net.parameters(), lr=1e-2)
        scaler = plait.cuda.amp.GradScaler()
        x = plait.randn(32, 4)
        y = (x.sum(1) > 0).long().cuda()
        losses = []
        for step in range(20):
            optimizer.zero_grad(set_to_none=True)
            with plait.autocast("cuda", dtype=plait.float16):
                loss = plait.nn.functional.cross_entropy(net(x.cuda()), y)
            losses.append(loss.item())
            before = [p.detach().clone() for p in net.parameters()]
            scaler.scale(loss * float("inf") if step == 3 else loss).backward()
            scaler.unscale_(optimizer)
            plait.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            same = all(plait.equal(a, b) for a, b in zip(before, net.parameters()))
            assert same == (step == 3), step
        assert scaler.get_scale() == 2.0**15 and losses[-1] < losses[0] / 2, losses
    """)


def test_streams_and_events() -> None:
    run("""
        copies = plait.cuda.Stream()
        start, end = plait.cuda.Event(enable_timing=True), plait.cuda.Event(enable_timing=True)
        start.record()
        with plait.cuda.stream(copies):
            x = plait.ones(64, 64).to("cuda", non_blocking=True)
        plait.cuda.current_stream().wait_stream(copies)
        x.record_stream(plait.cuda.current_stream())
        y = x @ x
        end.record()
        end.synchronize()
        assert start.elapsed_time(end) > 0 and end.query() and copies == plait.cuda.current_stream("cuda:0")
        done = copies.record_event()
        copies.wait_event(done)
        done.synchronize()
        copies.synchronize()
        assert done.query() and copies.query() and y[0, 0].item() == 64
        try:
            done.elapsed_time(end)
        except RuntimeError as error:
            assert "enable_timing=True" in str(error)
        else:
            raise AssertionError("an event without times has one")
        assert "current" in plait.cuda.memory_summary()
    """)


def test_a_process_ends_while_the_driver_works() -> None:
    # Programs that the driver compiles at this moment, on threads of its own; no cache has them.
    work = textwrap.dedent("""
        x = plait.ones(70, 70, device="gpu:0")
        for f in (plait.sin, plait.erf, plait.lgamma):
            y = f(x @ x)
    """)
    run(work, MESA_SHADER_CACHE_DISABLE="true")
    fork = """
        import os
        child = os.fork()
        if child and os.waitpid(child, 0)[1]:
            sys.exit("the child failed")
    """
    run(work + textwrap.dedent(fork), MESA_SHADER_CACHE_DISABLE="true")


def test_what_a_gpu_is_asked_for_after_the_end_is_an_error() -> None:
    run(
        """
        import atexit, os
        from plait import _runtime
        atexit.unregister(_runtime._leave_devices)
        x = plait.ones(4, device="gpu:0") + 1
        assert x.sum().item() == 8
        def late():
            try:
                (x + 1).sum().item()
            except plait.DeviceError as error:
                assert "the process ends" in str(error), error
            else:
                os._exit(3)
        atexit.register(late)
        atexit.register(_runtime._leave_devices)
        """
    )
