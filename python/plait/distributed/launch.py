"""The older name of `plait.distributed.run`: without `--use-env`, a script's first argument is `--local-rank=N`.

Example:
    python -m plait.distributed.launch --nproc-per-node 4 train.py --lr 0.1
"""

from __future__ import annotations

if __name__ == "__main__":
    from plait.distributed.run.__main__ import main

    main(launch=True)
