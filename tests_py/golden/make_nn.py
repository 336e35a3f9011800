"""Writes nn.npz: what PyTorch's layers compute. Run it where PyTorch is installed."""

import json
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import torch
from nn_cases import FUNCTIONS, LAYERS, make_input

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)


def tensors(value):
    """Returns the tensors in nested results, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [t for v in value for t in tensors(v)]
    return []


def run(function, inputs, parameters):
    """Returns outputs and the gradients of inputs and parameters, of the outputs' sum with fixed weights."""
    out = [t for t in tensors(function(*inputs)) if t.numel()]
    total = sum(
        (t * torch.cos(torch.arange(t.numel()).double()).reshape(t.shape)).sum()
        for t in out
        if t.is_floating_point() and t.requires_grad
    )
    wanted = [t for t in [*inputs, *parameters] if isinstance(t, torch.Tensor) and t.requires_grad]
    grads = torch.autograd.grad(total, wanted, allow_unused=True) if wanted and isinstance(total, torch.Tensor) else []
    return [t.detach().numpy() for t in out], [
        np.zeros(w.shape) if g is None else g.numpy() for g, w in zip(grads, wanted, strict=True)
    ]


def main():
    saved = {}
    reprs = {}
    for n, case in enumerate(LAYERS):
        torch.manual_seed(n)
        rng = np.random.default_rng(n)
        made = [make_input(s, rng) for s in case["inputs"]]
        if case["name"] == "MultiheadAttention" and case["inputs"].count(case["inputs"][0]) == 3:
            made = [made[0]] * 3
        inputs = [torch.tensor(a, requires_grad=g) for a, g in made]
        module = getattr(torch.nn, case["name"])(*case["args"], **case["kwargs"])
        if case["name"] not in ("Embedding", "EmbeddingBag"):
            with torch.no_grad():
                for p in module.parameters():  # no zeros or ones
                    p.add_(torch.tensor(0.1 * rng.standard_normal(tuple(p.shape))))
        for name, t in module.state_dict().items():
            saved[f"{n}.state.{name}"] = t.clone().numpy()
        module.train(not case["eval"])
        reprs[str(n)] = repr(module)
        out, grads = run(partial(module, **case["call"]), inputs, list(module.parameters()))
        for k, a in enumerate(out):
            saved[f"{n}.out.{k}"] = a
        for k, a in enumerate(grads):
            saved[f"{n}.grad.{k}"] = a
        for name, t in module.state_dict().items():
            if "running" in name or "num_batches" in name:
                saved[f"{n}.after.{name}"] = t.numpy()
    for n, (name, specs, given) in enumerate(FUNCTIONS):
        rng = np.random.default_rng(1000 + n)
        kwargs = dict(given)
        inputs = [torch.tensor(a, requires_grad=g) for a, g in (make_input(s, rng) for s in specs)]
        third = kwargs.pop("_third", None)
        function = getattr(torch.nn.functional, name)
        if third:
            out, grads = run(lambda x, y, z, f=function, k=kwargs, t=third: f(x, y, **{t: z}, **k), inputs, [])
        else:
            out, grads = run(lambda *a, f=function, k=kwargs: f(*a, **k), inputs, [])
        for k, a in enumerate(out):
            saved[f"f{n}.out.{k}"] = a
        for k, a in enumerate(grads):
            saved[f"f{n}.grad.{k}"] = a
    saved["reprs"] = np.array(json.dumps(reprs))
    np.savez_compressed(Path(__file__).parent / "nn.npz", **saved)


if __name__ == "__main__":
    main()
