"""Writes optim.npz and optim.json: what PyTorch's optimisers do in ten steps. Run it where PyTorch is installed."""

import json
from pathlib import Path

import numpy as np
import torch

STEPS = 10
CASES = {
    "SGD": [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "maximize": True},
        {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    ],
    "Adam": [
        {"lr": 0.1},
        {"lr": 0.1, "betas": [0.8, 0.9], "eps": 1e-4, "weight_decay": 0.1},
        {"lr": 0.1, "amsgrad": True, "betas": [0.9, 0.5]},
        {"lr": 0.1, "maximize": True, "decoupled_weight_decay": True, "weight_decay": 0.1},
    ],
    "AdamW": [{"lr": 0.1}, {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True}],
    "Adamax": [{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}],
    "NAdam": [{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.1, "momentum_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{"lr": 0.1}, {"lr": 0.1, "betas": [0.9, 0.8], "weight_decay": 0.1}],
    "Adagrad": [{"lr": 0.1}, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}],
    "Adadelta": [{}, {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1}],
    "RMSprop": [{"lr": 0.05}, {"lr": 0.05, "alpha": 0.8, "momentum": 0.9, "centered": True, "weight_decay": 0.1}],
    "Rprop": [{"lr": 0.1}, {"lr": 0.1, "etas": [0.4, 1.5], "step_sizes": [0.01, 0.3]}],
    "ASGD": [{"lr": 0.1}, {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 3, "weight_decay": 0.1}],
    "Adafactor": [{"lr": 0.1}, {"lr": 0.5, "weight_decay": 0.1, "d": 1.5, "eps": [1e-6, 1e-2], "beta2_decay": -0.5}],
    "LBFGS": [{"lr": 0.5, "max_iter": 4}, {"lr": 1, "max_iter": 5, "history_size": 2}],
}


def main() -> None:
    """Runs every case in float64 from the same start on the same quadratic loss."""
    rng = np.random.default_rng(0)
    start = {"a": rng.normal(size=(3, 4)), "b": rng.normal(size=5)}
    scale = {k: rng.uniform(0.5, 2, size=v.shape) for k, v in start.items()}
    centre = {k: rng.normal(size=v.shape) for k, v in start.items()}
    arrays = {
        f"{what}.{k}": v for what, d in (("start", start), ("scale", scale), ("centre", centre)) for k, v in d.items()
    }
    states = {}
    for name, cases in CASES.items():
        for number, options in enumerate(cases):
            params = {k: torch.nn.Parameter(torch.tensor(v)) for k, v in start.items()}
            optimizer = getattr(torch.optim, name)(list(params.values()), **options)

            def closure(params=params, optimizer=optimizer):
                optimizer.zero_grad()
                loss = sum(
                    (torch.tensor(scale[k]) * (p - torch.tensor(centre[k])) ** 2).sum() for k, p in params.items()
                )
                loss.backward()
                return loss

            for step in range(STEPS):
                optimizer.step(closure)
                for k, p in params.items():
                    arrays[f"{name}.{number}.{step}.{k}"] = p.detach().numpy().copy()
            if name == "LBFGS":
                continue
            saved = optimizer.state_dict()
            for i, state in saved["state"].items():
                for k, v in state.items():
                    arrays[f"{name}.{number}.state.{i}.{k}"] = np.asarray(v)
            states[f"{name}.{number}"] = {
                "param_groups": saved["param_groups"],
                "state": {i: list(state) for i, state in saved["state"].items()},
            }
    here = Path(__file__).parent
    np.savez_compressed(here / "optim.npz", **arrays)
    (here / "optim.json").write_text(json.dumps({"steps": STEPS, "cases": CASES, "states": states}, indent=1) + "\n")


if __name__ == "__main__":
    main()
