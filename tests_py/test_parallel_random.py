"""Random training on many devices.

`PYTHONPATH=tests_py python tests_py/test_parallel_random.py fsdp 0 200` looks at many.
"""

import sys

import parallel_cases
import parallel_checks
import plait
import pytest
from parallel_checks import check_data, check_ddp, check_fsdp, check_pipeline
from parallel_composed import check_composed
from parallel_layouts import check_reshard, check_stages
from parallel_mistakes import check_mistake

CHECKS = {
    "fsdp": check_fsdp,
    "ddp": check_ddp,
    "data": check_data,
    "pipeline": check_pipeline,
    "stages": check_stages,
    "reshard": check_reshard,
    "composed": check_composed,
    "mistake": check_mistake,
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", CHECKS)
def test_random_training(kind, seed):
    CHECKS[kind](seed)


class Faulty(parallel_cases.Case):
    """A case of which the ranks, but not one device, do something wrong."""

    fault = ""

    def train(self, m, *place, ready=None):
        def wrong():
            last = [p for p in m.parameters() if p.grad is not None][-1]
            for p in m.parameters():
                if self.fault == "a sum for an average" and p.grad is not None:
                    p.grad.mul_(self.world)
            if self.fault == "a shard off by 1 %" and place[0] == 0:
                last.grad.mul_(1.01)
            ready()

        return super().train(m, *place, ready=wrong if place else ready)

    def loss(self, out, y, count, scale=1.0):
        skipped = self.fault == "a rank without a part" and plait.distributed.is_initialized()
        if skipped and plait.distributed.get_rank() == self.world - 1:
            scale = 0.0
        return super().loss(out, y, count, scale)


@pytest.mark.parametrize("fault", ["", "a shard off by 1 %", "a sum for an average", "a rank without a part"])
@pytest.mark.parametrize(("kind", "seed"), [("fsdp", 7), ("fsdp", 18), ("ddp", 53)])
def test_rounding_hides_no_fault(kind, seed, fault, monkeypatch):
    """Seeds of which the ranks round gradients."""
    rounded = []
    followed = parallel_checks.followed
    monkeypatch.setattr(Faulty, "fault", fault)
    monkeypatch.setattr(parallel_checks, "Case", Faulty)
    monkeypatch.setattr(parallel_checks, "followed", lambda *args: rounded.append(1) or followed(*args))
    if not fault:
        CHECKS[kind](seed)
    else:
        with pytest.raises(AssertionError, match="gradient of"):
            CHECKS[kind](seed)
    assert rounded, "the ranks round nothing: want a seed with which they do"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # the scaler skips a first step
@pytest.mark.parametrize("kind", CHECKS)
def test_much_random_training(kind):
    for seed in range(6, 200):
        CHECKS[kind](seed)


if __name__ == "__main__":
    kind, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    failed = 0
    for seed in range(first, last):
        try:
            CHECKS[kind](seed)
        except Exception as error:
            failed += 1
            print(seed, type(error).__name__, str(error).strip()[:300].replace("\n", " "), flush=True)
    print(f"{kind}: {failed} of {last - first} failed")
