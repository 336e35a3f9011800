"""Random training on many devices.

`PYTHONPATH=tests_py python tests_py/test_parallel_random.py fsdp 0 200` looks at many.
"""

import sys

import pytest
from parallel_checks import check_data, check_ddp, check_fsdp, check_pipeline
from parallel_layouts import check_reshard, check_stages
from parallel_mistakes import check_mistake

CHECKS = {
    "fsdp": check_fsdp,
    "ddp": check_ddp,
    "data": check_data,
    "pipeline": check_pipeline,
    "stages": check_stages,
    "reshard": check_reshard,
    "mistake": check_mistake,
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", CHECKS)
def test_random_training(kind, seed):
    CHECKS[kind](seed)


@pytest.mark.slow
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
