"""Random models and how they are trained, of which a seed says everything."""

import random

import numpy as np
import plait
from plait import nn
from plait.nn import functional as F
from plait.utils.checkpoint import checkpoint

WIDE, LONG, WORDS = 4, 3, 7  # features, positions and different tokens of a sample


class Residual(nn.Module):
    def __init__(self, rng):
        super().__init__()
        hidden = rng.choice([1, 3, 5, 8])
        self.norm = nn.LayerNorm(WIDE) if rng.random() < 0.6 else nn.Identity()
        self.up, self.down = nn.Linear(WIDE, hidden, bias=rng.random() < 0.7), nn.Linear(hidden, WIDE)
        self.gain = nn.Parameter(plait.tensor(0.75)) if rng.random() < 0.5 else 1.0

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).tanh()) * self.gain


class Convolution(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(WIDE, WIDE, 3, padding=1), nn.GroupNorm(2, WIDE)

    def forward(self, x):
        return x + self.norm(self.conv(x.transpose(1, 2))).transpose(1, 2).sigmoid()


class Attention(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.norm, self.attention = (
            nn.LayerNorm(WIDE),
            nn.MultiheadAttention(WIDE, rng.choice([1, 2]), bias=False, batch_first=True),
        )

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDE), nn.Parameter(plait.randn(LONG, WIDE) * 0.1)

    def forward(self, tokens):
        return self.words(tokens) + self.places


class Normed(nn.Module):
    """A norm over the whole batch, perhaps with buffers."""

    def __init__(self, tracked):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDE, track_running_stats=tracked)

    def forward(self, x):
        return x + self.norm(x.transpose(1, 2)).transpose(1, 2)


class Branch(nn.Module):
    """Parameters that some samples use: a rank without such samples leaves them unused."""

    def __init__(self):
        super().__init__()
        self.extra, self.chosen = nn.Linear(WIDE, WIDE), None

    def forward(self, x):
        if self.chosen is None or not bool(self.chosen.any()):
            return x
        return x + self.extra(x) * self.chosen.to(x.dtype)[:, None, None]


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDE), nn.Linear(WIDE, WORDS, bias=False)

    def forward(self, x):
        return self.out(self.norm(x))


class Case:
    """What a seed says."""

    def __init__(self, kind, seed):
        self.kind, self.seed = kind, seed
        rng = self.rng = random.Random(f"{kind} {seed}")
        self.world = rng.randint(1, 5)
        self.blocks = [rng.choice([Residual, Residual, Convolution, Attention]) for _ in range(rng.randint(1, 4))]
        self.tied, self.shared = rng.random() < 0.4, rng.random() < 0.25
        self.frozen = rng.random() < 0.25
        self.again = rng.choice(["", "", "", "each", "all", "reentrant"])
        self.passes = rng.choice([1, 1, 2, 3])
        self.clip = rng.choice([None, None, 0.05, 0.5])
        self.norm = rng.choice([1.0, 2.0, float("inf")])
        self.hook = rng.choice(["", "", "scale", "clamp"])
        self.optimizer = rng.choice(["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Adamax", "Rprop"])
        self.rows = [rng.randint(1, 3) for _ in range(self.world)]
        self.steps = rng.randint(1, 3)
        self.ignore = rng.random() < 0.4
        self.weighted = kind == "ddp" and rng.random() < 0.3
        self.normed = kind == "ddp" and rng.random() < 0.4
        if kind == "pipeline":
            self.hook, self.clip = "", None
        self.how = rng.choice(["one", "blocks", "layers", "group", "both", "policy"])
        if kind == "fsdp" and self.how not in ("one", "policy"):
            self.tied = self.shared = False  # a parameter belongs to one unit, which has all its users
        if kind == "data" and self.again == "reentrant" and self.hook == "clamp":
            self.hook = "scale"  # each replica's pass calls it
        if kind == "ddp" and self.again == "reentrant":
            self.again = "each"  # gradients would come in several passes
        if self.passes > 1 and self.hook == "clamp":
            self.hook = "scale"  # ranks that add up first clamp the sum
        if kind == "ddp" and self.hook == "clamp":
            self.hook = "scale"  # hooks see a rank's own gradients
        if kind == "fsdp" and self.shared and self.again == "reentrant" and self.hook == "clamp":
            self.hook = "scale"  # ranks clamp the sum of what a shared parameter gets from several passes
        self.branch, self.shifted = kind in ("ddp", "fsdp", "data") and rng.random() < 0.4, rng.random() < 0.4
        self.tracked = rng.random() < 0.5

    def model(self):
        plait.manual_seed(self.seed)
        rng = random.Random(self.seed)
        m = nn.Sequential(Tokens(), *(b(rng) for b in self.blocks), Head())
        if self.normed:
            m.insert(1, Normed(self.tracked))
        if self.branch:
            m.insert(1, Branch())
        if self.tied:
            m[-1].out.weight = m[0].words.weight
        same = [b for b in m if isinstance(b, Attention)]
        if self.shared and len(same) > 1:
            same[1].norm.weight = same[0].norm.weight
        if self.frozen:
            m[1 if len(m) > 2 else 0].requires_grad_(False)
        return m

    def run(self, m, x, shift=None, chosen=None):
        if self.branch:
            m[1].chosen = chosen
        if shift is not None:
            return m[-1](self.body(m[1:], m[0](x) + shift, 0))
        if self.again == "all":
            return m[-1](checkpoint(lambda t: self.body(m, t), x, use_reentrant=False))
        return m[-1](self.body(m, x))

    def body(self, m, x, first=1):
        for i, b in enumerate(list(m)[:-1]):
            if self.again in ("each", "reentrant") and i >= first and not isinstance(b, Branch):
                x = checkpoint(b, x, use_reentrant=self.again == "reentrant")
            else:
                x = b(x)
        return x

    def batch(self, step, first, last):
        rng = np.random.default_rng((self.seed, step))
        total = sum(self.rows)
        x, y = rng.integers(0, WORDS, (total, LONG)), rng.integers(0, WORDS, (total, LONG))
        if self.ignore:
            y[rng.random((total, LONG)) < 0.3] = -100
        count = max(int((y >= 0).sum()), 1)
        return plait.tensor(x[first:last]), plait.tensor(y[first:last]), count

    def more(self, step, first, last):
        """Returns what the model gets beside the tokens."""
        rng = np.random.default_rng((self.seed, step, 1))
        more, total = {}, sum(self.rows)
        shift = plait.tensor(rng.standard_normal((total, LONG, WIDE)) * 0.1)
        if self.shifted:
            more["shift"] = shift[first:last]
        if self.branch:  # FSDP's units are used by all ranks or by none
            chosen = rng.random(total) < 0.3 if self.kind != "fsdp" else np.full(total, rng.random() < 0.6)
            more["chosen"] = plait.tensor(chosen)[first:last]
        return more

    def loss(self, out, y, count, scale=1.0):
        return F.cross_entropy(out.flatten(0, 1), y.flatten().to(out.device), reduction="sum") / count * scale

    def hooks(self, m):
        for p in m.parameters():
            if p.requires_grad and self.hook == "scale":
                p.register_hook(lambda g: g * 0.5)
            elif p.requires_grad and self.hook == "clamp":
                p.register_hook(lambda g: g.clamp(-0.02, 0.02))

    def train(self, m, rank=0, world=1, unsynchronised=None, ready=None):
        """Trains on a rank's rows, or on all, so that the average over ranks is the gradient of the mean.

        `ready` is called in each step as soon as there are the gradients.
        """
        first, last = (sum(self.rows[:rank]), sum(self.rows[: rank + 1])) if world > 1 else (0, sum(self.rows))
        opt = getattr(plait.optim, self.optimizer)([p for p in m.parameters() if p.requires_grad], lr=0.01)
        norms = []
        # Averages are over ranks, or in weighted ones over samples.
        scale = world if not self.weighted or world == 1 else sum(self.rows) / self.rows[rank]
        for step in range(self.steps):
            opt.zero_grad()
            for k in range(self.passes):
                x, y, count = self.batch(step * self.passes + k, first, last)
                more = self.more(step * self.passes + k, first, last)
                if unsynchronised is not None and k < self.passes - 1:
                    with unsynchronised():
                        self.loss(m(x, **more), y, count, scale).backward()
                else:
                    self.loss(m(x, **more), y, count, scale).backward()
            if ready is not None:
                ready()
            if self.clip is not None:
                norms.append(nn.utils.clip_grad_norm_(m.parameters(), self.clip, self.norm).item())
            opt.step()
        return norms


class Whole(nn.Module):
    """A case's model as one module, whose forward may compute parts again."""

    def __init__(self, case):
        super().__init__()
        self.case, self.layers = case, case.model()

    def forward(self, x, **more):
        return self.case.run(self.layers, x, **more)


def values(m):
    """Returns copies of a model's parameters and buffers."""
    return {n: t.detach().numpy().copy() for n, t in (*m.named_parameters(), *m.named_buffers())}


def gradients(m):
    """Returns copies of a model's gradients, None where there is none; of shards the whole, on every rank."""
    found = {n: p.grad for n, p in m.named_parameters()}
    whole = {n: g.full_tensor() if hasattr(g, "full_tensor") else g for n, g in found.items()}
    return {n: None if g is None else g.detach().double().numpy().copy() for n, g in whole.items()}


def alone(case, ready=None):
    """Trains on one device; returns the norms of gradients, and the values at the end."""
    plait.set_default_dtype(plait.float64)
    try:
        m = Whole(case)
        case.hooks(m)
        return case.train(m, ready=ready and (lambda: ready(m))), values(m)
    finally:
        plait.set_default_dtype(plait.float32)


def followed(case, steps, tol, about):
    """Trains on one device with gradients from elsewhere, for each step in turn, after comparing them with its own.

    Gradients are rounded, and some optimisers make of them, however small they are, steps of one size. With the same
    gradients the values at the end are the same, whichever the optimiser.
    """
    left = iter(steps)

    def ready(m):
        given = next(left)
        near(given, gradients(m), tol, about)
        for n, p in m.named_parameters():
            p.grad = None if given[n] is None else plait.tensor(given[n])

    return alone(case, ready)


def near(got, want, tol, about):
    """Compares gradients by the largest element of each, and of all, since small ones are sums of large terms."""
    assert got.keys() == want.keys()
    assert {n for n in got if got[n] is None} == {n for n in want if want[n] is None}, about
    largest = {n: np.abs(g).max(initial=0) for n, g in want.items() if g is not None}
    for n, size in largest.items():
        atol = tol * (size + 0.1 * max(largest.values()))
        np.testing.assert_allclose(got[n], want[n], rtol=0, atol=atol, err_msg=f"{about}: gradient of {n}")


def close(got, want, tol, about):
    assert got.keys() == want.keys()
    for n in want:
        np.testing.assert_allclose(got[n], want[n], rtol=tol, atol=tol, err_msg=f"{about}: {n}")
