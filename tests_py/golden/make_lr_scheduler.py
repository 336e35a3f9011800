"""Writes lr_scheduler.json: the rates of PyTorch's schedules over forty steps. Run it where PyTorch is installed."""

import json
from pathlib import Path

import torch
from torch.optim import lr_scheduler as lr

STEPS = 40
CASES = {
    "StepLR": [{"step_size": 7, "gamma": 0.5}],
    "MultiStepLR": [{"milestones": [3, 9, 9, 20], "gamma": 0.3}],
    "ConstantLR": [{"factor": 0.25, "total_iters": 6}],
    "LinearLR": [{"start_factor": 0.2, "end_factor": 0.9, "total_iters": 8}, {}],
    "ExponentialLR": [{"gamma": 0.9}],
    "PolynomialLR": [{"total_iters": 12, "power": 2.0}],
    "CosineAnnealingLR": [{"T_max": 10, "eta_min": 0.01}],
    "CosineAnnealingWarmRestarts": [{"T_0": 4, "T_mult": 2, "eta_min": 0.01}, {"T_0": 6}],
    "OneCycleLR": [
        {"max_lr": 0.5, "total_steps": 50},
        {"max_lr": [0.5, 0.3], "epochs": 5, "steps_per_epoch": 10, "anneal_strategy": "linear", "three_phase": True},
    ],
    "CyclicLR": [
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5},
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4, "step_size_down": 7, "mode": "triangular2"},
        {"base_lr": [0.01, 0.02], "max_lr": 0.1, "step_size_up": 5, "mode": "exp_range", "gamma": 0.95},
    ],
}


def rates(make) -> dict:
    """Returns the rates, and momenta, of two groups over the steps."""
    params = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.05}], lr=0.1, momentum=0.9)
    schedule = make(optimizer)
    out = {"lr": [schedule.get_last_lr()], "momentum": [optimizer.param_groups[0]["momentum"]]}
    for _ in range(STEPS):
        optimizer.step()
        schedule.step()
        out["lr"].append(schedule.get_last_lr())
        out["momentum"].append(optimizer.param_groups[0]["momentum"])
    return out


def main() -> None:
    """Runs every case, and combinations."""
    found = {
        n: [{"options": o, **rates(lambda opt, n=n, o=o: getattr(lr, n)(opt, **o))} for o in c]
        for n, c in CASES.items()
    }
    more = {
        "sequential": rates(
            lambda o: lr.SequentialLR(o, [lr.LinearLR(o, 0.1, total_iters=5), lr.CosineAnnealingLR(o, 20)], [5])
        ),
        "chained": rates(lambda o: lr.ChainedScheduler([lr.ConstantLR(o, 0.1, 4), lr.ExponentialLR(o, 0.9)])),
        "lambda": rates(lambda o: lr.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (1 + e)])),
        "multiplicative": rates(lambda o: lr.MultiplicativeLR(o, lambda e: 0.95)),
        "swa": rates(lambda o: torch.optim.swa_utils.SWALR(o, 0.02, anneal_epochs=7)),
    }
    params = [torch.nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD(params, lr=0.1)
    plateau = lr.ReduceLROnPlateau(optimizer, patience=2, factor=0.5, cooldown=1, min_lr=0.01)
    metrics = [1 / (1 + min(i, 6)) for i in range(STEPS)]
    seen = []
    for m in metrics:
        plateau.step(m)
        seen.append(optimizer.param_groups[0]["lr"])
    more["plateau"] = {"metrics": metrics, "lr": seen}
    Path(__file__).with_name("lr_scheduler.json").write_text(json.dumps({"cases": found, "more": more}) + "\n")


if __name__ == "__main__":
    main()
