"""Writes distributions.json: PyTorch's numbers of distributions. Run it where PyTorch is installed."""

import json
from functools import partial
from pathlib import Path

import torch
from distribution_cases import CASES, CONSTRAINTS, OTHERS, PAIRED, TRANSFORMS, expression, kinds, made

f64 = partial(torch.tensor, dtype=torch.float64)
PROBABILITIES = (0.1, 0.6)


def said(call):
    """Returns the numbers that a call returns; nothing where PyTorch refuses."""
    try:
        return call().tolist()
    except (NotImplementedError, RuntimeError):  # GeneralizedPareto.log_prob refuses float64
        return None


def facts(name):
    """Returns what PyTorch says of a distribution."""
    d = made(torch.distributions, CASES[name][0], f64)
    value = f64(CASES[name][1])
    found = {
        "batch_shape": list(d.batch_shape),
        "event_shape": list(d.event_shape),
        "log_prob": said(lambda: d.log_prob(value)),
        "cdf": said(lambda: d.cdf(value)),
        "icdf": [said(lambda p=p: d.icdf(torch.full(d.batch_shape, p, dtype=torch.float64))) for p in PROBABILITIES],
        "entropy": said(d.entropy),
    }
    for moment in ("mean", "mode", "variance", "stddev"):
        found[moment] = said(lambda moment=moment: getattr(d, moment))
    return found


def transformed(name):
    """Returns what PyTorch says of a transform at some values."""
    kind, values = TRANSFORMS[name]
    f = eval(kind, {"T": torch.distributions.transforms, "D": torch.distributions, "t": lambda *v: f64(list(v))})
    x = f64(values)
    y = f(x)
    return {
        "y": y.tolist(),
        "slope": said(lambda: f.log_abs_det_jacobian(x, y)),
        "shape": list(f.forward_shape(x.shape)),
    }


def registered(registry, name):
    """Returns what PyTorch says of the transform to a constraint: nothing but its refusal where it has none."""
    kind, values = CONSTRAINTS[name]
    try:
        f = registry(eval(kind, {"C": torch.distributions.constraints, "t": lambda *v: f64(list(v))}))
    except NotImplementedError as error:
        return {"error": str(error)}
    x = f64(values)
    y = f(x)
    return {
        "kinds": kinds(f),
        "bijective": f.bijective,
        "event_dims": [f.domain.event_dim, f.codomain.event_dim],
        "y": y.tolist(),
        "inverse": f.inv(y).tolist(),
        "slope": said(lambda: f.log_abs_det_jacobian(x, y)),
        "inverse_shape": list(f.inverse_shape(y.shape)),
    }


def main():
    """Writes the file."""
    pairs = {}
    for p in PAIRED:
        for q in PAIRED:
            first = made(torch.distributions, expression(p), f64)
            second = made(torch.distributions, OTHERS[q], f64)
            kept = said(lambda p=first, q=second: torch.distributions.kl_divergence(p, q))
            if kept is not None:
                pairs[f"{p} | {q}"] = kept
    found = {"distributions": {name: facts(name) for name in CASES}, "divergences": pairs}
    found["transforms"] = {name: transformed(name) for name in TRANSFORMS}
    for registry in ("biject_to", "transform_to"):
        found[registry] = {name: registered(getattr(torch.distributions, registry), name) for name in CONSTRAINTS}
    Path(__file__).with_name("distributions.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
