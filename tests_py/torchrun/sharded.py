"""A model that is sharded layer by layer from the meta device, with mixed precision and a sharded checkpoint."""

import argparse
import os

import plait as torch
import plait.distributed.checkpoint as dcp
from plait import nn
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from plait.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def reset_parameters(self):
        for m in (self.norm, self.up, self.down):
            m.reset_parameters()

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, dim=16, vocab=32):
        super().__init__()
        self.embed, self.output = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
        self.layers = nn.ModuleList(Block(dim) for _ in range(4))

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


def main(args):
    rank = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        device = torch.device(f"cuda:{rank}")
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    torch.distributed.init_process_group(backend="nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Net()
    kwargs = {}
    if args.mixed_precision:
        kwargs["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, **kwargs)
    fully_shard(model, **kwargs)
    assert isinstance(model, FSDPModule)
    for i, layer in enumerate(model.layers[:-1]):
        layer.set_modules_to_forward_prefetch([model.layers[i + 1]])
        model.layers[i + 1].set_modules_to_backward_prefetch([layer])
    model.to_empty(device=device)
    for m in (model.embed, model.output, *model.layers):
        m.reset_parameters()
    optim = torch.optim.Adam(model.parameters(), lr=1e-2)
    if os.path.exists(args.folder):
        states = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optim)}
        dcp.load(states, checkpoint_id=args.folder)
        set_model_state_dict(model, states["model"], options=StateDictOptions(strict=True))
        set_optimizer_state_dict(model, optim, states["optim"])
    for i in range(5):
        x = torch.randint(0, 32, (4, 8), generator=torch.Generator().manual_seed(i), device=device)
        if args.explicit_prefetching:
            model.unshard()
        loss = nn.functional.cross_entropy(model(x).float().flatten(0, 1), x.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optim.step()
        optim.zero_grad()
    dcp.save(
        {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optim)},
        checkpoint_id=args.folder,
    )
    if torch.distributed.get_rank() == 0:
        print(f"loss {loss.item():.6f}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="sharded training")
    parser.add_argument("folder")
    parser.add_argument("--explicit-prefetching", action="store_true", default=False)
    parser.add_argument("--mixed-precision", action="store_true", default=False)
    main(parser.parse_args())
