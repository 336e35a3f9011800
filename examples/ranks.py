"""Trains on two ranks, which are threads of this process, or the processes that a launcher started.

python examples/ranks.py
python -m plait.distributed.run --nproc-per-node 2 examples/ranks.py
"""

import os

import plait
from plait import distributed, nn, optim


def train(rank: int) -> None:
    """Trains a small model on this rank's part of each batch. Rank 0 prints the loss, and a weight in full."""
    distributed.init_process_group()
    world = distributed.get_world_size()
    plait.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    generator = plait.Generator().manual_seed(1)
    for step in range(100):
        batch = plait.randn(32, 8, generator=generator)  # all ranks draw the same numbers
        x = batch[rank::world]
        loss = (model(x) - x.square().sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        distributed.all_reduce(total := loss.detach().clone(), op=distributed.ReduceOp.AVG)
        if rank == 0 and step % 25 == 24:
            print(f"step {step + 1}: loss {total.item():.4f}")
    if rank == 0:
        print(f"weight {model.module[0].weight[0, 0].item():.17g}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
    else:
        distributed.spawn(train, nprocs=2)
