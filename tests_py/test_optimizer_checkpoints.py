"""Whatever an optimiser keeps, training goes on with the same bits after a file, a folder, or in another layout."""

import plait
import pytest
from plait import nn
from plait.distributed import checkpoint as dcp
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

NAMES = [
    *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Lion", "Muon", "NAdam", "RAdam"),
    *("RMSprop", "Rprop", "SGD"),
]
MORE = {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "LBFGS": {"history_size": 3, "max_iter": 4}}


def start(name, seed, dtype):
    plait.manual_seed(seed)
    m = nn.Sequential(nn.Linear(3, 5, bias=False), nn.Tanh(), nn.Linear(5, 2, bias=False)).to(dtype)
    return m, getattr(plait.optim, name)(m.parameters(), lr=0.05, **MORE.get(name, {}))


def train(m, optimizer, begin, end):
    for i in range(begin, end):
        x = (plait.arange(12.0).reshape(4, 3).sin() + i / 10).to(m[0].weight.dtype)

        def closure(x=x):
            optimizer.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    return [p.tolist() for p in m.parameters()]


def through_file(path, m, optimizer, other, others):
    plait.save({"m": m.state_dict(), "o": optimizer.state_dict()}, path / "a.pt")
    yield
    state = plait.load(path / "a.pt")
    other.load_state_dict(state["m"])
    others.load_state_dict(state["o"])


def through_folder(path, m, optimizer, other, others):
    dcp.save({"m": m, "o": optimizer}, checkpoint_id=path)
    yield
    dcp.load({"m": other, "o": others}, checkpoint_id=path)


def through_names(path, m, optimizer, other, others, flat=False):
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    dcp.save({"m": m, "o": get_optimizer_state_dict(m, optimizer, options=options)}, checkpoint_id=path)
    yield
    state = {"m": other, "o": get_optimizer_state_dict(other, others, options=options)}
    dcp.load(state, checkpoint_id=path)
    set_optimizer_state_dict(other, others, state["o"], options=options)


def through_flat_names(*args):
    return through_names(*args, flat=True)


def through_joined(path, m, optimizer, other, others, **options):
    """Plain dicts, as of several optimisers' states in one."""
    chosen = StateDictOptions(**options)
    dcp.save({**get_optimizer_state_dict(m, optimizer, options=chosen), "m": m}, checkpoint_id=path)
    yield
    state = {"m": other, **get_optimizer_state_dict(other, others, options=chosen)}
    if "state" in state:
        state["state"] = {**state["state"]}
    dcp.load(state, checkpoint_id=path)
    state.pop("m")
    assert all("." not in k or k.count(".") > 1 for k in state)
    set_optimizer_state_dict(other, others, state, options=chosen)


def through_joined_flat(*args):
    return through_joined(*args, flatten_optimizer_state_dict=True)


def through_joined_whole(*args):
    return through_joined(*args, flatten_optimizer_state_dict=True, full_state_dict=True, cpu_offload=True)


THROUGH = through_file, through_folder, through_names, through_flat_names
JOINED = through_joined, through_joined_flat, through_joined_whole


@pytest.mark.parametrize(
    "dtype,through",
    [(plait.float32, w) for w in (*THROUGH, *JOINED)] + [(d, through_folder) for d in (plait.float64, plait.bfloat16)],
)
@pytest.mark.parametrize("name", NAMES)
def test_training_goes_on_with_the_same_bits(tmp_path, name, dtype, through):
    for before in (0, 6):  # a new optimiser, and one that has made steps
        first, second = start(name, 0, dtype), start(name, 1, dtype)
        train(*first, 0, 4)
        train(*second, 0, before)
        moving = through(tmp_path, *first, *second)
        next(moving)
        want = train(*first, 4, 7)
        next(moving, None)
        assert train(*second, 4, 7) == want
