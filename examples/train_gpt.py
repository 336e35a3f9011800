"""Trains a small GPT, one character at a time, on the source of Python's standard library, and shows what it learnt.

    python examples/train_gpt.py    # or: make train
    python examples/train_gpt.py --device gpu --log losses.txt
    python examples/train_gpt.py --parallel ddp --devices cpu:0 cpu:1
    python examples/train_gpt.py --parallel pipeline --schedule zb-h1
    python examples/train_gpt.py --parallel fsdp --devices cpu:0 cpu:1    # parameters are divided too

It prints the loss on text that it does not train on, a sample of generated text, and writes the losses to loss.png.
"""

from __future__ import annotations

import argparse
import math
import re
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import plait
import plait.nn.functional as F
from plait import Tensor, distributed, nn
from plait.distributed.fsdp import fully_shard
from plait.distributed.pipelining import schedule_names
from plait.nn.parallel import DataParallel, DistributedDataParallel
from plait.optim import AdamW
from plait.optim.lr_scheduler import LambdaLR
from plait.utils.data import DataLoader, Dataset, RandomSampler

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None


def read_source(folder: Path, limit: int) -> str:
    """Returns up to `limit` characters of the Python files below `folder`, in the order of their names."""
    parts, size = [], 0
    for path in sorted(folder.rglob("*.py")):
        if {"test", "tests", "idle_test", "site-packages", "encodings"} & set(path.parts):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        parts.append(re.sub(r"[^\n -~]", "?", text))
        size += len(text)
        if size >= limit:
            break
    return "".join(parts)[:limit]


class Windows(Dataset):
    """Pieces of a text, one beginning at each character, and what follows each of their characters."""

    def __init__(self, codes: Tensor, length: int) -> None:
        self.codes = codes
        self.length = length

    def __len__(self) -> int:
        return len(self.codes) - self.length

    def __getitem__(self, start: int) -> tuple[Tensor, Tensor]:
        end = start + self.length
        return self.codes[start:end], self.codes[start + 1 : end + 1]


class Attention(nn.Module):
    """Self-attention in which each place sees those before it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.projection = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.projection(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    """One layer of a transformer: attention, then a network that looks at each place by itself."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.network(self.norm2(x))


class Start(nn.Module):
    """Turns characters and their places into vectors."""

    def __init__(self, kinds: int, context: int, width: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(kinds, width)
        self.places = nn.Embedding(context, width)

    def forward(self, codes: Tensor) -> Tensor:
        places = plait.arange(end=codes.shape[1], device=codes.device)
        return self.characters(codes) + self.places(places)


class GPT(nn.Module):
    """Predicts the next character at each place of a text from those before it."""

    def __init__(self, kinds: int, context: int, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.context = context
        self.start = Start(kinds, context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, kinds, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, codes: Tensor) -> Tensor:
        """Returns the scores [B, T, kinds] of what follows each character of `codes` [B, T]."""
        return self.head(self.norm(self.blocks(self.start(codes))))

    @plait.no_grad()
    def generate(self, codes: Tensor, length: int, temperature: float = 0.7) -> Tensor:
        """Returns `codes` [1, T] with `length` more characters, each drawn from the model's prediction."""
        self.eval()
        for _ in range(length):
            scores = self(codes[:, -self.context :])[:, -1] / temperature
            codes = plait.cat([codes, plait.multinomial(F.softmax(scores, dim=-1), 1)], dim=1)
        self.train()
        return codes


def loss_of_scores(scores: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean loss of predictions."""
    return F.cross_entropy(scores.flatten(0, 1), targets.to(scores.device).flatten())


def loss_of(model: nn.Module, codes: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean loss of a model's predictions."""
    return loss_of_scores(model(codes), targets)


@plait.no_grad()
def validate(model: nn.Module, batches: DataLoader, device: str) -> float:
    """Returns the mean loss over `batches`."""
    model.eval()
    losses = [loss_of(model, x.to(device), y.to(device)).item() for x, y in batches]
    model.train()
    return sum(losses) / len(losses)


def plot(path: Path, losses: list[float], validation: dict[int, float]) -> None:
    """Writes a picture of the losses, where matplotlib is installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("install matplotlib to get a picture of the losses")
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot(range(1, len(losses) + 1), losses, linewidth=0.7, label="training")
    axes.plot(list(validation), list(validation.values()), marker="o", label="validation")
    axes.set(xlabel="step", ylabel="loss per character (nats)")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
    print(f"wrote {path}")


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a small GPT on the source of Python's standard library.")
    parser.add_argument("--steps", type=int, default=3000, help="training steps")
    parser.add_argument("--batch", type=int, default=24, help="pieces of text in a step")
    parser.add_argument("--context", type=int, default=64, help="characters that the model sees at once")
    parser.add_argument("--width", type=int, default=128, help="width of the model")
    parser.add_argument("--layers", type=int, default=4, help="transformer blocks")
    parser.add_argument("--heads", type=int, default=4, help="attention heads in a block")
    parser.add_argument("--dropout", type=float, default=0.02, help="share of activations to drop in training")
    parser.add_argument("--lr", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument(
        "--text", type=Path, default=Path(sysconfig.get_path("stdlib")), help="a folder of Python files"
    )
    parser.add_argument("--characters", type=int, default=4_000_000, help="how much text to read")
    parser.add_argument("--sample", type=int, default=300, help="characters to generate at the end")
    parser.add_argument("--device", default="cpu", help="the device, where --parallel is none")
    parser.add_argument(
        "--parallel",
        choices=("none", "dp", "ddp", "fsdp", "pipeline"),
        default="none",
        help="dp: one thread drives all devices; ddp: a rank for each device; fsdp: the same, each with a part of "
        "every parameter; pipeline: each device has some layers",
    )
    parser.add_argument("--devices", nargs="+", default=["cpu:0", "cpu:1"], help="the devices of --parallel")
    parser.add_argument("--schedule", default="1f1b", choices=schedule_names(), help="the order of a pipeline's passes")
    parser.add_argument("--chunks", type=int, default=4, help="micro-batches of a pipeline")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, default=Path("loss.png"))
    parser.add_argument("--log", type=Path, help="a file to write the loss of each step to, one a line")
    args = parser.parse_args(argv)
    if min(args.steps, args.batch, args.context, args.width, args.layers, args.heads, args.chunks) < 1:
        parser.error("steps, batch, context, width, layers, heads and chunks must be at least 1")
    if args.width % args.heads:
        parser.error(f"--width {args.width} must be a multiple of --heads {args.heads}")
    if not args.text.is_dir():
        parser.error(f"--text {args.text} is not a folder")
    try:
        for device in [args.device] if args.parallel == "none" else args.devices:
            plait.empty(0, device=device)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    return args


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Trains, and returns the validation loss at the start and at the end."""
    args = arguments(argv)
    results: list[tuple[float, float]] = []
    if args.parallel in ("ddp", "fsdp"):
        distributed.spawn(train, args=(args, results), nprocs=len(args.devices), devices=args.devices)
    else:
        train(0, args, results)
    return results[0]


def train(rank: int, args: argparse.Namespace, results: list[tuple[float, float]]) -> None:
    """Trains on one rank; the first one reports, and adds its validation losses to `results`."""
    ranks = 1
    if args.parallel in ("ddp", "fsdp"):
        distributed.init_process_group()
        ranks = distributed.get_world_size()
    device = args.device if args.parallel == "none" else args.devices[rank]
    plait.manual_seed(args.seed)

    text = read_source(args.text, args.characters)
    alphabet = sorted(set(text))
    code = {c: i for i, c in enumerate(alphabet)}
    codes = plait.tensor([code[c] for c in text])
    cut = len(codes) * 9 // 10
    training, held_out = Windows(codes[:cut], args.context), Windows(codes[cut:], args.context)
    if len(codes) - cut <= args.context:
        raise SystemExit(f"{len(codes)} characters of Python in {args.text}: too few to see {args.context} at once")
    # Batches have generators of their own: all ranks see the same ones, and dropout's numbers do not depend on them.
    order = plait.Generator().manual_seed(args.seed)
    sampler = RandomSampler(training, replacement=True, num_samples=args.steps * args.batch, generator=order)
    batches = DataLoader(training, batch_size=args.batch, sampler=sampler, generator=order)
    validation_sampler = range(0, len(held_out), max(1, len(held_out) // 480))
    validation_batches = DataLoader(held_out, batch_size=48, sampler=validation_sampler, generator=plait.Generator())

    divided = args.parallel == "fsdp"
    with plait.device("meta" if divided else plait.get_default_device()):  # a divided model is never whole
        model = GPT(len(alphabet), args.context, args.width, args.layers, args.heads, args.dropout)
    if not divided:
        model.to(device)
    plait.manual_seed(args.seed + 1)  # so have devices: after making the model, any of them draws the same for dropout
    net: nn.Module = model
    if args.parallel == "dp":
        net = DataParallel(model, args.devices)
    elif args.parallel == "ddp":
        net = DistributedDataParallel(model, weighted=True)
    elif args.parallel == "pipeline":
        stages = [model.start, *model.blocks, nn.Sequential(model.norm, model.head)]
        net = plait.Pipeline(stages, args.devices, args.chunks, args.schedule, loss_of_scores)
    count, largest = (sum(p.numel() for p in m.parameters()) for m in (model, model.blocks[0]))
    if divided:
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = AdamW(groups, lr=args.lr, betas=(0.9, 0.95))
    warm_up = max(1, args.steps // 20)

    def rate(step: int) -> float:
        if step < warm_up:
            return (step + 1) / warm_up
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, args.steps - warm_up)))

    scheduler = LambdaLR(optimizer, rate)
    if rank == 0:
        where = device if args.parallel == "none" else ", ".join(args.devices)
        print(f"{len(text):,} characters of {len(alphabet)} kinds; {count:,} parameters on {where}")

    start = time.perf_counter()
    losses: list[float] = []
    moved: Counter[str] = Counter()  # between the host and a GPU, by training steps
    validated = net if args.parallel == "pipeline" else model
    everyone = rank == 0 or args.parallel == "fsdp"  # a divided model runs on all ranks or on none
    validation = {0: validate(validated, validation_batches, device)} if everyone else {}
    for step, (x, y) in enumerate(progress(batches) if rank == 0 else batches, start=1):
        before = transfers(device)
        mine = slice(rank * len(x) // ranks, (rank + 1) * len(x) // ranks)  # this rank's part of the batch
        if isinstance(net, plait.Pipeline):
            loss, _ = net.step(x, y, return_outputs=False)
        else:
            loss = loss_of(net, x[mine].to(device), y[mine].to(device))
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        moved.update({what: n - before[what] for what, n in transfers(device).items()})
        if everyone and (step % max(1, args.steps // 5) == 0 or step == args.steps):
            validation[step] = validate(validated, validation_batches, device)
            if rank == 0:
                say(f"step {step}: training loss {losses[-1]:.3f}, validation loss {validation[step]:.3f}")

    seconds = time.perf_counter() - start
    if args.parallel == "fsdp":
        say_memory(rank, ranks, device, count, largest, args.layers)
    prompt = plait.tensor([[code[c] for c in "def "]], device=device)
    writer = model.to(device) if args.parallel == "pipeline" else model
    sample = writer.generate(prompt, args.sample)[0].tolist() if everyone else []
    if rank != 0:
        return
    speed = args.steps * args.batch * args.context / seconds
    print(
        f"validation loss {validation[0]:.3f} -> {validation[args.steps]:.3f} "
        f"in {seconds:.0f} s, {speed:,.0f} characters/s"
    )
    if moved:
        print(
            f"the steps sent {moved['to_device']} tensors to {device} "
            f"({moved['to_device.bytes']:,} bytes of codes and targets) "
            f"and read {moved['from_device']} ({moved['from_device.bytes']:,} bytes of losses)"
        )
    print("".join(alphabet[i] for i in sample))
    if args.log:
        args.log.write_text("".join(f"{v:.9g}\n" for v in losses))
    plot(args.plot, losses, validation)
    results.append((validation[0], validation[args.steps]))


def say_memory(rank: int, ranks: int, device: str, count: int, largest: int, blocks: int) -> None:
    """Prints the peak bytes of each rank, beside activations, and what they may be at most."""
    peaks = plait.memory_stats(device, rank)
    mine = sum(peaks[f"peak.{c}"] for c in ("parameters", "gradients", "optimiser", "communication"))
    every: list[int] = [0] * ranks
    distributed.all_gather_object(every, mine)
    # A part of parameters, gradients and two states of AdamW; two blocks gathered and the gradients of two; and the
    # rest of the model, which is gathered from its forward pass to its backward pass, and its gradients.
    formula = 4 * (4 * count / ranks + 4 * largest + 2 * (count - blocks * largest))
    if rank == 0:
        for r, n in enumerate(every):
            say(f"rank {r}: at most {n:,} bytes beside activations; the formula allows {formula:,.0f}")


def transfers(device: str) -> dict[str, int]:
    """Returns what has moved between the host and a GPU so far; nothing for CPU devices."""
    return plait.cuda.transfer_stats(device) if plait.device(device).type in ("gpu", "cuda") else {}


def progress(batches: DataLoader) -> Iterator[tuple[Tensor, Tensor]] | DataLoader:
    """Returns `batches` with a bar of how many were taken, where tqdm is installed."""
    return tqdm(batches, unit="step", mininterval=0.5) if tqdm else batches


def say(line: str) -> None:
    """Prints a line above the progress bar."""
    if tqdm:
        tqdm.write(line)
    else:
        print(line)


if __name__ == "__main__":
    main()
