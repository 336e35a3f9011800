"""The GPU from Python: tensors, memory, streams."""

from __future__ import annotations

import plait
import pytest
from gpus import run


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
        assert plait.cuda.get_device_capability() == (properties.major, properties.minor)
        assert properties.max_tensor_size >= 1 << 27 and properties.max_threads_per_workgroup >= 256, properties
        assert properties.driver in ("cuda", "webgpu") and properties.total_memory > 0, properties
        other = "cuda" if properties.driver == "webgpu" else "webgpu"
        assert properties.driver_reason.startswith(f"{other}: "), properties
        assert (properties.major > 0) == (properties.multi_processor_count > 0), properties
        x = plait.arange(6, dtype=plait.float32, device="cuda").reshape(2, 3)
        if properties.driver == "cuda":
            assert plait.cuda.get_arch_list() == [f"sm_{properties.major}{properties.minor}"]
            free, total = plait.cuda.mem_get_info()
            kept = plait.ones(64 << 20, device="cuda")
            less, same = plait.cuda.mem_get_info("cuda:0")
            assert 0 < less <= free - (kept.nbytes >> 1) and free < total == same, (free, less, total)
            assert 0 <= plait.cuda.utilization() <= 100 and 0 <= plait.cuda.memory_usage(0) <= 100
        else:
            for ask in (plait.cuda.mem_get_info, plait.cuda.utilization, plait.cuda.memory_usage):
                try:
                    ask()
                except NotImplementedError as error:
                    assert "runs under webgpu" in str(error)
                else:
                    raise AssertionError(ask)
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
        assert f"{'cuda' if properties.driver == 'cuda' else 'gpu'}:0" in text and "cpu:0" in text, text
        if properties.driver == "cuda":
            far = x.to(plait.float64).exp().cpu() - x.cpu().to(plait.float64).exp()
            assert far.dtype == plait.float64 and far.abs().max().item() < 1e-13
        else:
            text = message(lambda: x.to(plait.float64), NotImplementedError)
            assert "float64 is not supported" in text, text
        import numpy as np
        a = np.array([1.5, -2.25, 3])  # is converted on the host, since a GPU may not have float64
        made = [
            plait.tensor(a, dtype=plait.float32, device="gpu"),
            plait.as_tensor(a, dtype=plait.float32, device="gpu"),
            plait.asarray(a, dtype=plait.float32, device="gpu"),
            plait.tensor(a).to("gpu", plait.float32),
            plait.tensor(plait.tensor(a), dtype=plait.float32, device="gpu"),
        ]
        with plait.device("gpu"):
            made += [plait.tensor(a, dtype=plait.float32), plait.tensor(a, dtype=plait.float32, device=0)]
        for x in made:
            assert x.device == plait.device("gpu:0") and x.dtype is plait.float32 and x.tolist() == a.tolist()
        leaf = plait.tensor(a, requires_grad=True)
        (leaf.to("gpu", plait.float32) ** 2).sum().backward()
        assert leaf.grad.dtype is plait.float64 and leaf.grad.device.type == "cpu"
        assert leaf.grad.tolist() == (2 * a).tolist()
        small = plait.tensor(np.array([0, 255], np.uint8), dtype=plait.float32, device="gpu")
        assert small.tolist() == [0, 255]
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
            assert str(a.device) in str(error) and str(b.device) in str(error), error
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


def test_distributions() -> None:
    run("""
        from plait import distributions as D
        x, s = plait.zeros(3, device="gpu:0", requires_grad=True), plait.ones(3, device="gpu:0")
        p, c = D.Normal(x, s), D.Categorical(logits=x)
        draws, classes = p.rsample((4,)), c.sample((5,))
        loss = p.log_prob(draws).sum() + D.kl_divergence(p, D.Normal(s, 2.0)).sum() + c.log_prob(classes).sum()
        loss.backward()
        assert {t.device.type for t in (draws, classes, x.grad, c.entropy())} == {plait.device("gpu").type}
        m = D.MultivariateNormal(s, plait.eye(3, device="gpu:0") * 4)
        assert abs(m.log_prob(s).item() - m.entropy().neg().add(1.5).item()) < 1e-5
        for d in (D.Bernoulli(logits=x), D.Laplace(x, s), D.LogNormal(x, s), D.Uniform(x, s), D.OneHotCategorical(s)):
            assert d.sample((2,)).is_cuda, d
    """)
