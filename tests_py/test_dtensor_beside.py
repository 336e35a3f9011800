"""What stands beside distributed tensors: new tensors, lists of indices, parametrizations of weights."""

import plait
import pytest
from plait import nn
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from ranks import on_one_device as on_ranks


def model():
    plait.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6), nn.LayerNorm(6)).double()


def divided(plan=None):
    plan = plan or {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(model(), init_device_mesh("cpu", (2,)), plan)


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate(), Partial()])
def test_new_tensors_are_distributed(placement):
    def check(rank):
        x = distribute_tensor(plait.ones(3, 4).double(), init_device_mesh("cpu", (2,)), [placement])
        own = Replicate() if placement == Partial() else placement
        for make, value in ((x.new_zeros, 0), (x.new_ones, 1), (lambda *s: x.new_full(s, 2.0), 2)):
            for shape, where in (((3, 4), own), ((4, 3), Replicate()), ((2,), Replicate())):
                made = make(*shape)
                assert isinstance(made, DTensor)
                assert made.placements == (where,)
                assert made.dtype == plait.float64
                assert made.full_tensor().tolist() == plait.full(shape, value).tolist()
        assert x.new_empty(2, 2, dtype=plait.int64).fill_(3).full_tensor().tolist() == [[3, 3], [3, 3]]
        assert (x + x.new_ones(3, 4)).full_tensor().sum().item() == 24
        made = x.new_zeros(3, 4, requires_grad=True)
        (made * x).sum().backward()
        assert made.grad.full_tensor().tolist() == [[1.0] * 4] * 3

    on_ranks(2, check)


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate(), Partial("avg")])
def test_lists_of_indices(placement):
    whole = plait.arange(15).reshape(5, 3).double()
    indices = {
        "rows": [0, 4, 4],
        "a mask": [True, False, True, True, False],
        "columns": (slice(None), [2, 0]),
        "pairs": ([0, 3], [1, 2]),
        "both": (slice(1, 4), [0, 2]),
    }

    def check(rank):
        x = distribute_tensor(whole, init_device_mesh("cpu", (2,)), [placement])
        for name, index in indices.items():
            got = x[index].full_tensor()
            assert got.tolist() == whole[index].tolist(), name
        if placement == Replicate():
            y, z = x.clone(), whole.clone()
            for t in (y, z):
                t[[1, 3]] = [1.0, 2.0, 3.0]
                t[0] = [7.0, 8.0, 9.0]
            assert y.full_tensor().tolist() == z.tolist()
        with pytest.raises(TypeError, match="ordinary tensor"):
            x[plait.tensor([0, 4])]

    on_ranks(2, check)


@pytest.mark.parametrize(
    "parametrize",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.orthogonal,
        nn.utils.spectral_norm,
    ],
)
def test_parametrizations_of_divided_layers(parametrize):
    x = plait.arange(12).reshape(2, 6).double() / 10

    def train(module):
        plait.manual_seed(3)
        parametrize(module[0])
        optimizer = plait.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            module(x).square().sum().backward()
            optimizer.step()
        return module(x).detach()

    want = train(model())

    def check(rank):
        assert plait.allclose(train(divided()), want, rtol=1e-7, atol=1e-9)

    on_ranks(2, check)


def test_vectors_of_parameters_of_which_some_are_divided():
    def check(rank):
        parameters = list(divided().parameters())
        vector = nn.utils.parameters_to_vector(parameters)
        assert plait.equal(vector.full_tensor(), nn.utils.parameters_to_vector(model().parameters()))
        for times, given in ((2, 2 * vector.full_tensor()), (3, 3 * vector)):
            nn.utils.vector_to_parameters(given, parameters)
            for p, q in zip(parameters, model().parameters(), strict=True):
                whole = p.full_tensor() if isinstance(p, DTensor) else p
                assert plait.equal(whole, times * q)
        assert not isinstance(parameters[-1], DTensor)

    on_ranks(2, check)


@pytest.mark.parametrize(
    ("plan", "what"), [({"0": 3}, "got 3 of int"), ("0", "got '0' of str"), ([Shard(0)], "of list")]
)
def test_plans_without_styles(plan, what):
    def check(rank):
        with pytest.raises(TypeError, match=f"want a style, or styles by the names of submodules, .*{what}"):
            divided(plan)

    on_ranks(2, check)
