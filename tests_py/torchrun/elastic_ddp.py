"""A toy model under DDP on the machine's accelerator, started by torchrun, and a checkpoint that all ranks read."""

import os
import sys

import plait as torch
import plait.distributed as dist
from plait import nn, optim
from plait.nn.parallel import DistributedDataParallel as DDP  # noqa: N817


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_checkpoint(path):
    if torch.accelerator.is_available():
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
        acc = torch.accelerator.current_accelerator()
        backend = torch.distributed.get_default_backend_for_device(acc)
    else:
        backend = "gloo"
    dist.init_process_group(backend)
    rank = dist.get_rank()
    device_id = rank % max(torch.accelerator.device_count(), 1)
    device = f"cuda:{device_id}" if torch.cuda.is_available() else "cpu"
    model = ToyModel().to(device)
    ddp_model = DDP(model, device_ids=[device_id] if torch.cuda.is_available() else None)
    if rank == 0:
        torch.save(ddp_model.state_dict(), path)
    dist.barrier()
    map_location = {f"cuda:{0}": f"cuda:{rank}"} if torch.cuda.is_available() else device
    ddp_model.load_state_dict(torch.load(path, map_location=map_location, weights_only=True))
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    optimizer.zero_grad()
    outputs = ddp_model(torch.randn(20, 10).to(device))
    loss_fn(outputs, torch.randn(20, 5).to(device)).backward()
    optimizer.step()
    total = sum(p.double().sum() for p in ddp_model.parameters())
    print(f"weights {total.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    demo_checkpoint(sys.argv[1])
