"""Gradient accumulation under DDP with a master process that evaluates and saves, in the shape of GPT trainers."""

import math
import os
import sys
from contextlib import nullcontext

import plait as torch
from plait.distributed import destroy_process_group, init_process_group
from plait.nn import functional as F
from plait.nn.parallel import DistributedDataParallel as DDP  # noqa: N817

backend, device, dtype = "nccl", "cpu", "bfloat16"
accumulation, batch_size, block_size, steps = 4, 4, 8, 12
ddp = int(os.environ.get("RANK", "-1")) != -1
if ddp:
    init_process_group(backend=backend)
    ddp_rank = int(os.environ["RANK"])
    ddp_local_rank = int(os.environ["LOCAL_RANK"])
    ddp_world_size = int(os.environ["WORLD_SIZE"])
    if torch.cuda.is_available():
        device = f"cuda:{ddp_local_rank}"
        torch.cuda.set_device(device)
    master_process = ddp_rank == 0
    seed_offset = ddp_rank
    assert accumulation % ddp_world_size == 0
    accumulation //= ddp_world_size
else:
    master_process, seed_offset, ddp_world_size = True, 0, 1

torch.manual_seed(1337 + seed_offset)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
data = (torch.arange(4000) * 7 % 31).to(torch.int64)


def get_batch():
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    if device_type == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x.to(device), y.to(device)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(31, 32), torch.nn.Linear(32, 31, bias=False)
        self.block = torch.nn.Sequential(torch.nn.LayerNorm(32), torch.nn.Linear(32, 64), torch.nn.GELU())
        self.out = torch.nn.Linear(64, 32)

    def forward(self, idx, targets=None):
        x = self.embed(idx)
        logits = self.head(x + self.out(self.block(x)))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


model = Model().to(device)
scaler = torch.amp.GradScaler(device_type, enabled=(dtype == "float16"))
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), fused=device_type == "cuda")
if ddp:
    model = DDP(model, device_ids=[ddp_local_rank] if device_type == "cuda" else None)
raw_model = model.module if ddp else model
X, Y = get_batch()
for step in range(steps):
    lr = 1e-2 * (0.5 * (1 + math.cos(math.pi * step / steps)))
    for group in optimizer.param_groups:
        group["lr"] = lr
    for micro_step in range(accumulation):
        if ddp:
            model.require_backward_grad_sync = micro_step == accumulation - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / accumulation
        X, Y = get_batch()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if step == 0:
        first = loss.item()
    if step == steps - 1 and master_process:
        print(f"fell {loss.item() < 0.9 * first}")
        torch.save({"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, sys.argv[1])
total = torch.tensor([p.double().sum().item() for p in raw_model.parameters()]).sum()
print(f"weights {total.item():.6f}")
if ddp:
    destroy_process_group()
