"""Writes checkpoint.pt and checkpoint.json, for test_serialization: runs where PyTorch is installed."""

import collections
import json
import pathlib

import torch

HERE = pathlib.Path(__file__).parent
torch.manual_seed(0)

model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
model(torch.randn(5, 3)).sum().backward()
optimiser.step()
base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
state = {
    "model": model.state_dict(),
    "optimiser": optimiser.state_dict(),
    "epoch": 3,
    "big": 1 << 70,
    "rate": 0.5,
    "name": "käse",
    "raw": b"\x00\xff",
    "flags": [True, False, None],
    "set": {1, 2},
    "tuple": (1, (2, 3, 4, 5)),
    "size": torch.Size([2, 3]),
    "device": torch.device("cpu"),
    "dtype": torch.bfloat16,
    "base": base,
    "row": base[1],
    "transposed": base.t(),
    "zero_d": torch.tensor(2.5, dtype=torch.float64),
    "empty": torch.empty(0, 3),
    "bfloat16": torch.tensor([1.5, -2.0, float("inf")], dtype=torch.bfloat16),
    "half": torch.tensor([0.5, 65504.0], dtype=torch.float16),
    "long": torch.tensor([1 << 40, -1]),
    "int": torch.tensor([7], dtype=torch.int32),
    "byte": torch.tensor([255], dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "parameter": torch.nn.Parameter(torch.tensor([1.0, 2.0])),
    "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
    "counter": collections.Counter({3: 2}),
}
torch.save(state, HERE / "checkpoint.pt")
torch.save({"a": torch.ones(2)}, HERE / "legacy.pt", _use_new_zipfile_serialization=False)
values = {
    "model": {k: v.tolist() for k, v in state["model"].items()},
    "exp_avg": state["optimiser"]["state"][0]["exp_avg"].tolist(),
}
(HERE / "checkpoint.json").write_text(json.dumps(values))
