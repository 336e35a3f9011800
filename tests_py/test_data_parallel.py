"""DataParallel trains as one device does on the joined batch."""

import collections
import copy
import pickle

import numpy as np
import plait
import pytest
from plait import nn
from plait.nn.parallel import (
    DataParallel,
    bounded_staleness,
    data_parallel,
    gather,
    parallel_apply,
    replicate,
    scatter,
    scatter_kwargs,
)
from replicas import assert_close, batch, model, values

DEVICES = ["cpu:0", "cpu:1", "cpu:2"]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 30])
def test_case08_data_parallel_parity(n):
    x, y = batch(n)
    single, many = model(), DataParallel(model(), DEVICES)
    opts = [plait.optim.Adam(m.parameters(), lr=0.05) for m in (single, many)]
    for _ in range(3):
        for m, opt in zip((single, many), opts, strict=True):
            opt.zero_grad()
            nn.functional.mse_loss(m(x), y).backward()
            opt.step()
    assert_close(values(many), values(single))
    np.testing.assert_allclose(many(x).detach().numpy(), single(x).detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("devices", [["cpu:0", "cpu:0"], ["cpu:1", "cpu:0", "cpu:1", "cpu:0"]], ids=str)
def test_case08_several_replicas_on_a_device(devices):
    for n in (1, 3, 5, 12):
        x, y = batch(n)
        single, many = model(), DataParallel(model().to(devices[0]), devices)
        nn.functional.mse_loss(single(x), y).backward()
        nn.functional.mse_loss(many(x), y.to(devices[0])).backward()
        assert_close([p.grad.cpu().numpy() for p in many.parameters()], [p.grad.numpy() for p in single.parameters()])


def test_case08_functions():
    """The parts of DataParallel under PyTorch's names."""
    devices, x = ["cpu:0", "cpu:1", "cpu:2"], plait.arange(8.0, requires_grad=True)
    parts = scatter({"x": x, "scale": plait.tensor(2.0), "name": "n"}, devices)
    assert [p["x"].tolist() for p in parts] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [str(p["scale"].device) for p in parts] == devices
    assert [p["name"] for p in parts] == ["n"] * 3
    first, none, last = scatter(x, devices, weights=[3, 0, 1])
    assert (first.tolist(), none, last.tolist()) == ([0, 1, 2, 3, 4, 5], None, [6, 7])
    joined = gather([p["x"] * p["scale"] for p in parts], "cpu:1")
    assert (joined.tolist(), str(joined.device)) == ([0, 2, 4, 6, 8, 10, 12, 14], "cpu:1")
    joined.sum().backward()
    assert x.grad.tolist() == [2] * 8
    args, kwargs = scatter_kwargs((x,), {"y": x}, devices[:2])
    assert [len(a) for a in args] == [1, 1]
    assert kwargs[1]["y"].tolist() == [4, 5, 6, 7]
    m = nn.Linear(4, 2)
    replicas = replicate(m, devices)
    batch = [plait.ones(2, 4, device=d) for d in devices]
    out = gather(parallel_apply(replicas, batch, devices=devices), "cpu:0")
    assert out.shape == (6, 2)
    out.sum().backward()
    assert m.bias.grad.tolist() == [6, 6]
    assert not replicate(m, devices, detach=True)[1].weight.requires_grad
    with pytest.raises(ValueError, match=r"4 and 1 samples.*different devices"):
        scatter((plait.ones(4, 2), plait.ones(1, 2)), devices[:2])
    with pytest.raises(ValueError, match="0-d inputs"):
        scatter(plait.tensor(1.0), devices)


def test_case08_a_subclass_that_scatters_itself():
    class Uneven(DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            first = inputs[0][:1], inputs[0][1:]
            return [(part.to(d),) for part, d in zip(first, device_ids, strict=True)], [kwargs] * 2

    x, _ = batch(6)
    many = Uneven(model(), ["cpu:0", "cpu:1"])
    assert_close([many(x).detach().numpy()], [model()(x).detach().numpy()])


def test_copies_of_data_parallel():
    x, _ = batch(6)
    many = DataParallel(model(), ["cpu:0", "cpu:1"], weights=[2, 1])
    want = many(x)
    for other in (copy.deepcopy(many), pickle.loads(pickle.dumps(many))):
        assert_close([other(x).detach().numpy()], [want.detach().numpy()])
        other(x).sum().backward()
    assert all(p.grad is None for p in many.parameters())


def test_case08_nested_inputs_and_outputs():
    Out = collections.namedtuple("Out", ["double", "scalar"])

    class Nested(nn.Module):
        def forward(self, pair, *, options):
            return {"sum": pair[0] + pair[1], "out": Out(pair[0] * 2, options["bias"].sum()), "name": options["name"]}

    a, b = plait.arange(5.0), plait.ones(5)
    got = DataParallel(Nested(), ["cpu:0", "cpu:1"])((a, b), options={"bias": b, "name": "x"})
    assert got["sum"].tolist() == [1, 2, 3, 4, 5]
    assert got["out"].double.tolist() == [0, 2, 4, 6, 8]
    assert got["out"].scalar.tolist() == [3, 2]
    assert got["name"] == ["x", "x"]


def test_case10_buffers_are_those_of_the_first_device():
    bn = nn.BatchNorm1d(6).to(plait.float64)
    x, _ = batch(8)
    many = DataParallel(bn, ["cpu:0", "cpu:1"])
    many(x)
    alone = nn.BatchNorm1d(6).to(plait.float64)
    alone(x[:4])
    np.testing.assert_allclose(bn.running_mean.numpy(), alone.running_mean.numpy(), rtol=1e-12)
    assert bn.num_batches_tracked.item() == 1


def test_case11_wrong_device():
    m = nn.Linear(6, 2, device="cpu:1")
    with pytest.raises(RuntimeError, match=r"cpu:0.*cpu:1"):
        DataParallel(m, ["cpu:0", "cpu:2"])(plait.ones(4, 6))


def test_a_module_is_moved_after_it_was_wrapped():
    for move in (lambda m: m.to("cpu:1"), lambda m: m.module.to("cpu:1")):
        m = DataParallel(nn.Linear(6, 2), ["cpu:1", "cpu:2"])
        move(m)
        m(plait.ones(4, 6)).sum().backward()
        assert m.module.weight.grad.device == plait.device("cpu:1") and m.module.bias.grad.tolist() == [4, 4]
    with pytest.raises(plait.DeviceError, match="device: "):
        DataParallel(nn.Linear(6, 2), ["gpu:99"])


def test_case12_exception_names_the_replica():
    class Fails(nn.Module):
        def forward(self, x):
            if x.device == plait.device("cpu:1"):
                raise KeyError("lost")
            return x

    with pytest.raises(KeyError) as caught:
        DataParallel(Fails(), ["cpu:0", "cpu:1"])(plait.ones(4, 1))
    assert caught.value.__notes__ == ["raised in replica 1 on cpu:1"]


def test_case13_weights():
    x, y = batch(12)
    m = DataParallel(model(), ["cpu:0", "cpu:1"], weights=[3, 1])
    assert m.sizes(12) == [9, 3]
    nn.functional.mse_loss(m(x), y).backward()
    single = model()
    nn.functional.mse_loss(single(x), y).backward()
    assert_close([p.grad.numpy() for p in m.parameters()], [p.grad.numpy() for p in single.parameters()])
    auto = DataParallel(model(), ["cpu:0", "cpu:1"], weights="auto")
    auto(x)
    assert abs(sum(auto.weights) - 1) < 1e-9
    with pytest.raises(ValueError, match="weight"):
        m.set_weights([1, -1])


def test_case13_parts_of_the_devices():
    """Each device gets its share; measuring runs each one by itself, once."""
    seen = collections.Counter()

    class Watched(nn.Linear):
        def forward(self, x):
            seen[str(x.device), len(x)] += 1
            return super().forward(x)

    x = plait.ones(12, 6)
    DataParallel(Watched(6, 2), ["cpu:0", "cpu:1"], weights=[3, 1])(x)
    assert seen == {("cpu:0", 9): 1, ("cpu:1", 3): 1}
    auto = DataParallel(Watched(6, 2), ["cpu:0", "cpu:1"], weights="auto")
    auto(x)
    seen.clear()
    auto(x)
    assert sum(seen.values()) == sum(n > 0 for n in auto.sizes(12))


def test_case09_parameters_that_are_replaced():
    x, _ = batch(6)
    m = DataParallel(model(), DEVICES)
    m(x)
    m.module[0].weight = nn.Parameter(m.module[0].weight.detach() * 2)
    np.testing.assert_allclose(m(x).detach().numpy(), m.module(x).detach().numpy(), rtol=1e-9)
    m(x).sum().backward()
    assert m.module[0].weight.grad is not None


def test_data_parallel_stale_gradients():
    x, y = batch(12)
    m = DataParallel(model(), ["cpu:0", "cpu:1"])
    m.set_sync_mode(bounded_staleness(1))
    opt = plait.optim.SGD(m.parameters(), lr=0.05)
    first = nn.functional.mse_loss(m(x), y).item()
    for _ in range(6):
        opt.zero_grad()
        nn.functional.mse_loss(m(x), y).backward()
        opt.step()
    m.flush()
    assert m.staleness() <= 1
    assert nn.functional.mse_loss(m(x), y).item() < first


def test_data_parallel_around_the_edges():
    x, _ = batch(4)
    assert DataParallel(model(), [])(x).shape == (4, 2)
    assert data_parallel(model(), x, ["cpu:0", "cpu:1"]).shape == (4, 2)
    assert nn.DataParallel is DataParallel
    m = DataParallel(nn.LSTM(6, 3, batch_first=True).to(plait.float64), ["cpu:0", "cpu:1"])
    out, _ = m(x.view(4, 1, 6))
    assert out.shape == (4, 1, 3)
    assert all(k.startswith("module.") for k in m.state_dict())
    m.load_state_dict(m.module.state_dict())
    for wrong in (3, [model()]):
        with pytest.raises(TypeError, match="want a module"):
            DataParallel(wrong, ["cpu:0"])
    with pytest.raises(TypeError, match="list of devices"):
        DataParallel(model(), "cpu:0")
