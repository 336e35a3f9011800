"""Modules of graphs of plait.fx: copies, files, training, their code."""

import copy
import gc
import linecache
import pickle
import subprocess
import sys

import plait
import pytest
from fx_cases import Block, lines
from plait import fx, nn


def test_graph_modules_are_copied_pickled_and_saved(tmp_path):
    module = fx.symbolic_trace(Block().eval())
    module.extra = "kept"
    x = plait.randn(2, 4)
    want = module(x)["a"][1]
    for made in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert plait.equal(made(x)["a"][1], want) and made.code == module.code and type(made).__name__ == "Block"
        assert made.graph is not module.graph and made.graph.owning_module is made and made.extra == "kept"
        assert [n for n, _ in made.named_parameters()] == [n for n, _ in module.named_parameters()]
        assert made.lin.weight is not module.lin.weight and type(made) is not type(module)
        made.graph.eliminate_dead_code()
        made.recompile()
    assert set(module.state_dict()) == set(Block().state_dict())
    plait.save(module.state_dict(), tmp_path / "state")
    module.load_state_dict(plait.load(tmp_path / "state"))
    shallow = copy.copy(module)
    assert shallow.lin is module.lin
    with pytest.raises(AssertionError, match="want a Graph"):
        module.graph = 3


def test_graph_modules_train():
    def losses(module):
        optimizer = plait.optim.SGD(module.parameters(), lr=0.001)
        out = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = (module(x)["a"][1] ** 2).sum()
            loss.backward()
            optimizer.step()
            out.append(loss.item())
        return out

    x = plait.randn(3, 4)
    module = Block().eval()
    traced = copy.deepcopy(fx.symbolic_trace(module))
    want = losses(module)
    assert losses(traced) == want and want[-1] < want[0]
    assert plait.equal(traced.p.grad, module.p.grad)


def test_graph_modules_are_modules_like_others(tmp_path):
    module = fx.symbolic_trace(Block().eval())
    x = plait.randn(2, 4)
    want = module(x)["a"][1]
    replicated = plait.DataParallel(module, ["cpu:0"])
    assert plait.equal(replicated(x)["a"][1], want)
    called = plait.func.functional_call(module, {n: p * 0 for n, p in module.named_parameters()}, (x,))
    assert called["a"][1].abs().sum() == 0
    plait.save(module, tmp_path / "module")
    assert plait.equal(plait.load(tmp_path / "module", weights_only=False)(x)["a"][1], want)
    assert module.double()(x.double())["a"][1].dtype is plait.float64


def test_code_that_is_replaced_leaves_nothing_behind():
    module = fx.symbolic_trace(lambda x: x + 1)
    gc.collect()
    before = len(linecache.cache)
    for _ in range(10):
        module.recompile()
    gc.collect()
    assert len(linecache.cache) <= before


def test_modules_below_a_graph_module(capsys):
    module = fx.symbolic_trace(Block())
    assert module.add_submodule("new.part", nn.ReLU()) and module.new.part is not None
    assert not module.add_submodule("p.part", nn.ReLU())
    assert module.delete_submodule("new.part") and not module.delete_submodule("new.part")
    module.add_submodule("unused", nn.Linear(2, 2))
    module.delete_all_unused_submodules()
    assert [n for n, _ in module.named_modules()] == ["", "lin", "seq", "seq.0", "seq.1"]
    text = module.print_readable()
    assert capsys.readouterr().out == text + "\n"
    assert text.splitlines()[:3] == [
        "class Block(plait.nn.Module):",
        "    def forward(self, x, y = 3, k = None):",
        "        # No stacktrace found for following nodes",
    ]


def test_an_error_in_generated_code_shows_the_line():
    traced = fx.symbolic_trace(lambda x: x.reshape(7))
    with pytest.raises(ValueError, match="reshape") as caught:
        traced(plait.ones(2))
    assert any("reshape = x.reshape(7)" in str(entry) for entry in caught.traceback)


def test_names_of_programs_that_import_torch(tmp_path):
    """Code has the program's names, and what one kind of program pickles the other reads."""
    script, path = tmp_path / "script.py", tmp_path / "module"
    script.write_text(
        f"""
import pickle, torch
from torch import nn
from torch.fx import symbolic_trace
from torch.fx.graph_module import GraphModule

net = nn.Sequential(nn.Linear(2, 2))
traced = symbolic_trace(lambda x: torch.relu(x).to(torch.float64))
print(traced.code)
pickle.dump(symbolic_trace(net), open({str(path)!r}, "wb"))
assert isinstance(traced, GraphModule) and traced(torch.ones(1)).dtype == torch.float64
"""
    )
    done = subprocess.run([sys.executable, "-m", "plait.torch", script], check=True, capture_output=True, text=True)
    assert lines(done.stdout)[1:] == [
        "relu = torch.relu(x);  x = None",
        "to = relu.to(torch.float64);  relu = None",
        "return to",
    ]
    with path.open("rb") as file:
        made = pickle.load(file)
    assert lines(made.code)[1] == "input_1 = input" and made(plait.ones(1, 2)).shape == (1, 2)


def test_graphs_name_ranges_of_profiles():
    class Ranges(fx.Tracer):
        def trace(self, root, concrete_args=None):
            with pytest.MonkeyPatch.context() as patch:
                enter, end = plait.ops.profiler._record_function_enter, plait.ops.profiler._record_function_exit
                made = {}

                def begin(r):
                    made[r] = self.create_proxy("call_function", enter, (r.name,), {})

                patch.setattr(plait.profiler.record_function, "__enter__", begin)
                patch.setattr(plait.profiler.record_function, "__exit__", lambda r, *_: end(made[r]))
                return super().trace(root, concrete_args)

    def named(x):
        with plait.autograd.profiler.record_function("part"):
            return plait.relu(x)

    graph = Ranges().trace(named)
    graph.owning_module = fx.GraphModule({}, graph)
    graph.eliminate_dead_code()
    with plait.autograd.profiler.profile() as found:
        fx.GraphModule({}, graph)(plait.ones(2))
    assert "part" in {e.key for e in found.key_averages()} and "part" in str(found)
