"""Calls that mypy checks: those it must accept, and those it must not, each marked with the error that it wants."""
# mypy: warn-unused-ignores

import plait
from plait import distributed, nn, optim, special
from plait.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from plait.nn import functional as F

x = plait.ones(3)
made: plait.Tensor = plait.atan2(x, x, out=x)
made = special.erf(x, out=x)
made = F.hardshrink(x, 0.25, out=x)
made = plait.atan2(x, 2)
plait.atan2(x)  # type: ignore[call-overload]
plait.abs(x, there=x)  # type: ignore[call-overload]
nn.Linear(3, 3, device="cpu", dtype=plait.float64)
nn.Linear(3, 3, device=plait.device("cpu"))
nn.Linear(3, 3, device=0.5)  # type: ignore[arg-type]
nn.Linear(3, 3, dtype="float64")  # type: ignore[arg-type]
linear: nn.Linear = fully_shard(nn.Linear(3, 3), mp_policy=MixedPrecisionPolicy())
fully_shard(nn.Linear(3, 3), mesh="shards")  # type: ignore[arg-type]
optim.AdamW(linear.parameters(), lr=plait.tensor(0.1))
optim.AdamW(linear.parameters(), lr="0.1")  # type: ignore[arg-type]
distributed.all_reduce(x, group="shards")  # type: ignore[arg-type]
