"""Steps replayed by `plait.compile` have the bits of steps that run."""

import copy
import warnings
from pathlib import Path

import plait
import pytest
from gpus import run
from plait import nn
from plait.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.2)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, 2, c // 2).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        x = x + self.drop(self.out(a.transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self, vocabulary=23, width=16):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(12, width)
        self.blocks, self.norm = nn.Sequential(Block(width), Block(width)), nn.LayerNorm(width)

    def forward(self, x):
        h = self.token(x) + self.position(plait.arange(x.shape[1], device=x.device))
        return F.linear(self.norm(self.blocks(h)), self.token.weight)


def train(device, compiled, autocast, steps=9):
    """Returns losses, parameters, gradients and the optimiser's state after some steps, and how often the step ran."""
    plait.manual_seed(5)
    model = GPT().to(device)
    optimizer = plait.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    scheduler = plait.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    ran = 0

    def step(x, y, *, clip):
        nonlocal ran
        ran += 1
        optimizer.zero_grad()
        with plait.autocast(device, dtype=plait.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return {"loss": loss, "norm": norm}

    if compiled:
        step = plait.compile(step)
    losses = []
    for n in range(steps):
        length = 12 if n != steps - 2 else 7  # runs in full
        codes = plait.tensor([[(i * i + j + n) % 23 for i in range(length + 1)] for j in range(3)])
        out = step(codes[:, :-1].to(device), codes[:, 1:].to(device), clip=0.5)
        scheduler.step()
        losses.append((out["loss"].detach(), out["norm"]))
    state = optimizer.state_dict()
    kept = [p.detach().clone() for p in model.parameters()] + [p.grad.clone() for p in model.parameters()]
    return [v.item() for pair in losses for v in pair], [t.tolist() for t in kept], state, ran


def compare(device, autocast):
    losses, kept, state, ran = train(device, False, autocast)
    assert ran == 9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got, got_kept, got_state, ran = train(device, True, autocast)
    assert got == losses and got_kept == kept
    assert ran == 4, "the first, two recordings, and the one of another length"
    assert got_state["param_groups"] == state["param_groups"]
    for n, s in state["state"].items():
        for name, value in s.items():
            assert got_state["state"][n][name].tolist() == value.tolist(), name


@pytest.mark.parametrize("autocast", [False, True])
def test_replays_equal_steps_that_run(autocast):
    compare("cpu", autocast)


def test_replays_on_a_gpu():
    run(f"""
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_compile
        for autocast in (False, True):
            test_compile.compare("cuda", autocast)
    """)


def test_rates_set_between_steps_count():
    def run(compiled):
        w = plait.ones(3, requires_grad=True)
        optimizer = plait.optim.SGD([w], lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            loss = (w * x).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = plait.compile(step) if compiled else step
        seen = []
        for n in range(8):
            optimizer.param_groups[0]["lr"] = 0.1 / (n + 1)
            seen.append(step(plait.full((3,), float(n))).item())
            if n == 5:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        return seen, w.tolist(), optimizer.state_dict()["state"][0]["momentum_buffer"].tolist()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(True) == run(False)


def test_arguments_changed_in_place_are_changed_in_each_call():
    def double(x, out):
        return plait.mul(x, 2, out=out)

    def fill(x, out):
        out.copy_(x * 2)
        if x[0].item() < 0:
            raise ValueError
        return out[1:]

    for function in (double, fill):
        compiled = plait.compile(function)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n in range(6):
                out = plait.zeros(3)
                result = compiled(plait.ones(3) * n, out)
                assert out.tolist() == [2 * n] * 3 and set(result.tolist()) == {2 * n}
                if function is double:
                    assert result.data_ptr() == out.data_ptr()


def test_arguments_are_changed_where_the_recorded_function_fails():
    def fill(out):
        out.add_(1)
        raise ValueError("late")

    compiled, out = plait.compile(fill), plait.zeros(3)
    for n in range(1, 5):
        with pytest.raises(ValueError, match="late"):
            compiled(out)
        assert out.tolist() == [n] * 3


COUNT = iter(range(1000))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x * 2 if x.sum().item() > 0 else x, "reads the value"),
        (lambda x: x * next(COUNT), "a number changes from step to step"),
        (lambda x: x.add_(1) * 1, "changes an argument in place"),
        (lambda x: x + plait.tensor([1.0, 2.0]), "runs on the host"),
        (lambda x: plait.manual_seed(3) and F.dropout(x), "seeds a generator"),
    ],
)
def test_what_cannot_be_replayed_runs_and_says_why_once(function, reason):
    compiled = plait.compile(function)
    with pytest.warns(UserWarning, match=reason) as seen:
        for _ in range(8):
            compiled(plait.ones(2))
    assert len(seen) == 1 and seen[0].filename == __file__
    with pytest.raises(RuntimeError, match=reason):
        strict = plait.compile(function, fullgraph=True)
        for _ in range(8):
            strict(plait.ones(2))


def test_a_schedule_inside_the_step():
    w = plait.ones(2, requires_grad=True)
    optimizer = plait.optim.SGD([w], lr=1.0)
    scheduler = plait.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    @plait.compile
    def step():
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()
        scheduler.step()

    with pytest.warns(UserWarning, match="set it between steps|a schedule steps inside"):
        for _ in range(6):
            step()
    assert w.tolist() == [1 - sum(0.5**n for n in range(6))] * 2


def test_modules():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    x = plait.randn(5, 3)
    want = copy.deepcopy(model)
    assert plait.compile(model) is model
    with plait.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(12):
            for m in (model, want):
                m.train(n % 3 != 0)
            plait.manual_seed(n)
            got = model(x)
            plait.manual_seed(n)
            assert got.tolist() == want(x).tolist()
    assert {k: v.tolist() for k, v in model.state_dict().items()} == {
        k: v.tolist() for k, v in want.state_dict().items()
    }
    copied = copy.deepcopy(model)
    assert copied.eval()(x).tolist() == model.eval()(x).tolist()
    with pytest.warns(UserWarning, match="call backward in the function"):
        for _ in range(3):
            model.train()(x).sum().backward()


def test_results_and_arguments():
    w = plait.ones(2)

    @plait.compile(name="pair")
    def pair(x, how, names=()):
        return x, w, [x + w, (how, names)]

    kept = []
    for n in range(8):
        a, b, (c, (how, names)) = pair(plait.full((2,), float(n)), "a", names=("b", 3))
        assert b is w and how == "a" and names == ("b", 3)
        kept.append((a, c))
    assert [a.tolist() for a, _ in kept] == [[n, n] for n in range(8)]
    assert [c.tolist() for _, c in kept] == [[n + 1, n + 1] for n in range(8)]


def test_errors():
    table = plait.ones(3, 2)
    calls = []

    @plait.compile
    def rows(i):
        calls.append(i)
        if len(calls) == 2:
            raise KeyError("mine")
        return table[i] * 2

    assert rows(plait.tensor([1])).tolist() == [[2, 2]]
    with pytest.raises(KeyError, match="mine"):
        rows(plait.tensor([1]))
    for _ in range(6):
        assert rows(plait.tensor([2])).tolist() == [[2, 2]]
    ran = len(calls)
    with pytest.raises(IndexError):
        rows(plait.tensor([5])).tolist()
    assert rows(plait.tensor([0])).tolist() == [[2, 2]] and len(calls) == ran


def test_what_is_no_function():
    with pytest.raises(TypeError, match="want a function or a module"):
        plait.compile(3)
    assert plait.compile(len, disable=True) is len and plait.compile(len, backend="eager") is len


def test_memory_stays_constant():
    w = plait.randn(50, 50, requires_grad=True)

    @plait.compile
    def step(x):
        w.grad = None
        loss = (x @ w).tanh().sum()
        loss.backward()
        return loss.detach()

    used = []
    for _ in range(20):
        step(plait.ones(30, 50)).item()
        used.append(plait.memory_stats()["current"])
    assert len(set(used[6:])) == 1
