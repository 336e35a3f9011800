"""The names of devices: "gpu" and "cuda" mean the same ones, whatever driver runs them."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap

import plait
import pytest
from gpus import run
from plait import _device
from plait._device import current_gpu, gpu_word


@pytest.mark.parametrize(
    ("spelt", "driver", "first", "want"),
    [
        ("gpu", "webgpu", "", "gpu"),
        ("cuda", "webgpu", "gpu", "cuda"),
        ("gpu", "webgpu", "cuda", "gpu"),
        ("", "webgpu", "", "gpu"),
        ("", "webgpu", "cuda", "cuda"),
        ("gpu", "cuda", "gpu", "cuda"),
        ("cuda", "cuda", "", "cuda"),
        ("", "cuda", "gpu", "cuda"),
        ("gpu", "", "", "gpu"),
        ("cuda", "", "", "cuda"),
    ],
)
def test_word(spelt: str, driver: str, first: str, want: str) -> None:
    assert gpu_word(spelt, driver, first) == want


@pytest.fixture(params=["webgpu", "cuda"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The driver that seems to run the first GPU; another one runs the second."""
    other = "webgpu" if request.param == "cuda" else "cuda"
    monkeypatch.setattr(_device, "_drivers", {0: request.param, 1: other})
    return request.param


def test_one_identity_under_every_driver(driver: str) -> None:
    gpu, cuda = plait.device("gpu:0"), plait.device(type="cuda", index=0)
    assert gpu == cuda == plait.device(0) == plait.device("cuda", 0) == plait.device("gpu") == current_gpu()
    assert len({hash(d) for d in (gpu, cuda, plait.device(0), current_gpu())}) == 1
    assert {gpu: 1}[cuda] == {cuda: 1}[gpu] == 1 and gpu != plait.device("cuda:1") and gpu != plait.device("cpu:0")
    assert (cuda.type, str(cuda), repr(cuda)) == ("cuda", "cuda:0", "device(type='cuda', index=0)")
    word = "cuda" if driver == "cuda" else "gpu"
    assert (gpu.type, str(gpu), repr(gpu)) == (word, f"{word}:0", f"device(type='{word}', index=0)")
    assert str(plait.device("gpu")) == word and str(plait.device(gpu)) == f"{word}:0"
    assert str(plait.device("gpu:1")) == ("gpu:1" if driver == "cuda" else "cuda:1")
    assert str(plait.device("cuda:1")) == "cuda:1" and str(plait.device("cpu:1")) == "cpu:1"


def test_copies_are_spelt_alike(driver: str) -> None:
    for d in (
        plait.device("gpu:0"),
        plait.device("cuda"),
        plait.device(1),
        plait.device("meta"),
        plait.device("cpu", 1),
    ):
        for twin in (copy.copy(d), copy.deepcopy(d), pickle.loads(pickle.dumps(d)), plait.device(d)):
            assert twin == d and hash(twin) == hash(d) and str(twin) == str(d) and twin.index == d.index


@pytest.mark.parametrize("first", ["gpu", "cuda"])
def test_devices_without_a_word_have_the_first(first: str, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device, "_first_word", "")
    pickled = pickle.dumps(plait.device("cuda:0" if first == "gpu" else "gpu:0"))
    monkeypatch.setattr(_device, "_first_word", "")
    fallback = "cuda" if driver == "cuda" else "gpu"
    pickle.loads(pickled)
    assert plait.device(0).type == current_gpu().type == fallback, "neither pickles nor numbers count"
    plait.device(first, 1)
    plait.device("cuda" if first == "gpu" else "gpu")
    want = "cuda" if driver == "cuda" else first
    assert plait.device(0).type == current_gpu().type == plait.cuda.device(0).type == want


def test_printing_looks_for_no_gpus() -> None:
    script = """
        import plait
        from plait import _core
        names = [str(plait.device(d)) for d in ("gpu", "cuda", "gpu:0", "cuda:3", 1)]
        assert names == ["gpu", "cuda", "gpu:0", "cuda:3", "gpu:1"], names
        assert plait.device("gpu:0") == plait.device("cuda:0") and _core.bind_DeviceDriverOf(0) == ""
        if plait.cuda.device_count():
            assert _core.bind_DeviceDriverOf(0) in ("cuda", "webgpu") and _core.bind_DeviceDriverOf(999) == ""
    """
    env = {**os.environ, "PLAIT_SOFTWARE_GPU": "1"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=env, check=True, timeout=300)


@pytest.mark.parametrize("word", ["gpu", "cuda"])
def test_tensors_say_what_the_program_said(word: str) -> None:
    run(f"""
        import io, pickle
        from plait import nn
        driver = plait.cuda.get_device_properties().driver
        assert plait.ones(2, device=0).device.type == ("cuda" if driver == "cuda" else "gpu")
        want = "cuda" if driver == "cuda" else {word!r}
        x = plait.ones(2, requires_grad=True).to({word!r})
        assert (x.device.type, str(x.device)) == (want, want + ":0"), x.device
        assert f"device='{{want}}:0'" in repr(x) and x.is_cuda and x.get_device() == 0
        assert x.device == plait.device("gpu:0") == plait.device("cuda:0")
        assert {{x.device: 1}}[plait.device("gpu:0")] == {{plait.device("cuda:0"): 1}}[x.device] == 1
        with plait.device("gpu"):
            assert plait.zeros(1).device.type == want and plait.get_default_device() == x.device
        with plait.autocast("cuda", dtype=plait.float16):
            product = plait.ones(2, 2, device="gpu") @ plait.ones(2, 2, device="cuda")
            assert plait.is_autocast_enabled("gpu") and product.dtype == plait.float16
        with plait.random.fork_rng(devices=[0]), plait.random.fork_rng(device_type="cuda"):
            plait.rand(2, device="gpu")
        assert plait.accelerator.current_accelerator().type == plait.cuda.Stream().device.type == want
        with plait.accelerator.device_index(None), plait.accelerator.device_index(1):
            assert plait.cuda.current_device() == 1
            assert plait.zeros(1).device.type == "cpu"  # only names of GPUs mean another one
        assert plait.cuda.current_device() == 0
        file = io.BytesIO()
        plait.save({{"x": x.detach(), "on": x.device}}, file)
        for where in (None, "cuda:0", "gpu:0", 0, {{"cuda:0": "gpu:0"}}, {{"gpu:0": "cuda:0"}}, plait.device("cuda")):
            file.seek(0)
            found = plait.load(file, map_location=where)
            assert found["x"].device == found["on"] == x.device and found["x"].device.type == want, where
        net = nn.Linear(2, 2).to({word!r})
        net.load_state_dict(nn.Linear(2, 2).cuda().state_dict())
        assert pickle.loads(pickle.dumps(x.device)) == x.device
        with plait.profiler.profile() as p:
            (x.detach() + 1).tolist()
        assert any(e.device == ("cuda:0" if driver == "cuda" else "gpu:0") for e in p.events()), p.events()
    """)


def test_driver_that_the_environment_asks_for() -> None:
    run(
        """
        properties = plait.cuda.get_device_properties()
        assert (properties.driver, properties.driver_reason) == ("webgpu", "cuda: PLAIT_GPU_DRIVER asks for webgpu")
        assert str(plait.device("gpu:0")) == "gpu:0" and str(plait.device("cuda:0")) == "cuda:0"
        """,
        PLAIT_GPU_DRIVER="webgpu",
    )
    for value, message in (
        ("vulkan", "PLAIT_GPU_DRIVER is 'vulkan'"),
        ("gpu:0=metal", "PLAIT_GPU_DRIVER gives gpu:0 the driver 'metal', want cuda or webgpu"),
        ("gpu:200=webgpu", "PLAIT_GPU_DRIVER has a driver for gpu:200, which does not exist"),
    ):
        run(
            f"""
            try:
                plait.zeros(1, device="gpu")
            except (RuntimeError, ValueError) as error:
                assert {message!r} in str(error).replace('"', "'"), error
            else:
                raise AssertionError("the value was accepted")
            """,
            PLAIT_GPU_DRIVER=value,
        )
