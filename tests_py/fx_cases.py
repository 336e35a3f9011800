"""What the tests of plait.fx trace and compare."""

import plait
import plait.nn.functional as F
from plait import fx, nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.p = nn.Parameter(plait.ones(4))
        self.register_buffer("b", plait.arange(4.0))
        self.seq = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x, y=3, *, k=None):
        a = self.lin(x) + self.p
        a = self.seq(a) * self.p
        c = F.relu(a)
        d = plait.relu(c)
        e = plait.cat([c, d], dim=1)
        f = e.view(e.size(0), -1)
        g = self.b[f.argmax(-1)] + 2 - x.shape[0]
        h = F.dropout(f, 0.3, self.training)
        return {"a": (g, -h), "x": [x[:, 1:, None], y, None]}


def small():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(plait.relu, (x,))
    z = graph.call_method("add", (y, 1))
    graph.output(z)
    return graph, x, y, z


def lines(code):
    return [line.strip() for line in code.splitlines() if line.strip()]


def code_of(function):
    found = lines(fx.symbolic_trace(function).code)
    return found[found.index("def forward(self, x):") + 1 :]
