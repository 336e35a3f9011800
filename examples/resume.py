"""Trains on several processes, and goes on from its last checkpoint when it is started again, with the same numbers.

python -m plait.distributed.run --nproc-per-node 2 --max-restarts 3 examples/resume.py checkpoint

The parameters, Adam's state and the random numbers come back from the checkpoint, and so does the place in the epoch. A
world of another size can go on with it too: its batches, and so its numbers, are others.
"""

import sys
from itertools import islice
from pathlib import Path

import plait
import plait.distributed.checkpoint as dcp
from plait import distributed, nn, optim
from plait.distributed.fsdp import fully_shard
from plait.utils.data import DataLoader, TensorDataset
from plait.utils.data.distributed import DistributedSampler

EPOCHS, SAVE_EVERY = 4, 3


class Progress:
    """What a checkpoint has beside the model and the optimizer: where training is, and this rank's random numbers."""

    def __init__(self) -> None:
        self.epoch = self.batch = 0

    def state_dict(self) -> dict:
        states = [None] * distributed.get_world_size()
        # As numbers, not as tensors: those that a load asks for must be there, whatever the size of the world.
        distributed.all_gather_object(states, plait.get_rng_state().tolist())
        return {"epoch": self.epoch, "batches": self.batch * len(states), "random": states}

    def load_state_dict(self, state: dict) -> None:
        self.epoch, self.batch = state["epoch"], state["batches"] // distributed.get_world_size()
        if len(state["random"]) == distributed.get_world_size():
            mine = state["random"][distributed.get_rank()]
            plait.set_rng_state(plait.tensor(mine, dtype=plait.uint8))


def main(folder: str) -> None:
    """Trains, with checkpoints in a folder."""
    distributed.init_process_group()
    rank = distributed.get_rank()
    plait.manual_seed(0)
    x = plait.randn(96, 8)
    data = TensorDataset(x, x.square().sum(1, keepdim=True))
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    # A generator of its own: the loader's draws do not move on the random numbers of the training.
    loader = DataLoader(data, batch_size=6, sampler=sampler, generator=plait.Generator().manual_seed(2))
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    fully_shard(model)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    plait.manual_seed(100 + rank)  # the ranks drop different units
    progress = Progress()
    state = {"model": model, "optimizer": optimizer, "progress": progress}
    if (Path(folder) / "index.json").exists():  # which a save writes last
        dcp.load(state, checkpoint_id=folder)
        if rank == 0:
            print(f"goes on in epoch {progress.epoch} after {progress.batch} batches")
    for epoch in range(progress.epoch, EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in islice(loader, progress.batch, None):
            loss = (model(inputs) - targets).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress.batch += 1
            if progress.batch % SAVE_EVERY == 0:
                dcp.save(state, checkpoint_id=folder)
        progress.epoch, progress.batch = epoch + 1, 0
        distributed.all_reduce(total := loss.detach().clone(), op=distributed.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {total.item():.17g}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
