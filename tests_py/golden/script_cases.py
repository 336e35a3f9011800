"""Scripts as users write them, for PyTorch and for this package: each yields numbers of its training."""

import collections
import math
import os
import tempfile

import numpy as np


class Tools:
    """What the scripts share: weights and data that are the same under both libraries."""

    def __init__(self, torch):
        self.torch = torch

    def fill(self, module, seed=0, scale=0.3):
        """Sets all parameters, in the order of their names, and returns the module."""
        r = np.random.RandomState(seed)
        with self.torch.no_grad():
            for _, p in sorted(module.named_parameters()):
                p.copy_(self.torch.from_numpy((r.randn(*p.shape) * scale).astype(np.float32)))
        return module

    def normal(self, *shape, seed=1):
        """Returns normal numbers."""
        return self.torch.from_numpy(np.random.RandomState(seed).randn(*shape).astype(np.float32))

    def whole(self, high, *shape, seed=2):
        """Returns integers from 0."""
        return self.torch.from_numpy(np.random.RandomState(seed).randint(0, high, shape).astype(np.int64))


def vae(torch, t):
    """A variational autoencoder: AMSGrad, clipped gradients."""
    nn, F = torch.nn, torch.nn.functional

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(20, 16), nn.ReLU())
            self.mu, self.logvar = nn.Linear(16, 4), nn.Linear(16, 4)
            self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 20), nn.Sigmoid())

        def forward(self, x, noise):
            h = self.encoder(x.view(-1, 20))
            mu, logvar = self.mu(h), self.logvar(h)
            return self.decoder(noise.mul(torch.exp(0.5 * logvar)).add_(mu)), mu, logvar

    model = t.fill(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-4, amsgrad=True)
    x = torch.sigmoid(t.normal(32, 4, 5))
    for i in range(8):
        optimizer.zero_grad(set_to_none=False)
        y, mu, logvar = model(x, t.normal(32, 4, seed=i + 10))
        bce = F.binary_cross_entropy(y, x.view(-1, 20), reduction="sum")
        loss = (bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())) / x.size(0)
        loss.backward()
        yield nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        yield loss.item()


def resnet(torch, t):
    """A residual network: groups of parameters, smoothed and weighted labels, a one-cycle schedule, hooks."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, i, o, stride=1):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o)
            self.relu = nn.ReLU(inplace=True)
            self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride), nn.BatchNorm2d(o)) if i != o else nn.Identity()

        def forward(self, x):
            out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            out += self.down(x)
            return self.relu(out)

    model = nn.Sequential(
        collections.OrderedDict(
            stem=nn.Conv2d(1, 8, 3, padding=1),
            layers=nn.Sequential(Block(8, 8), Block(8, 16, 2)),
            pool=nn.AdaptiveAvgPool2d((1, 1)),
            flat=nn.Flatten(),
            fc=nn.Linear(16, 10),
        )
    )
    t.fill(model)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.linspace(0.5, 1.5, 10))
    decayed = [p for _, p in model.named_parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=6)
    seen = []
    hook = model.layers.register_forward_hook(lambda module, inputs, output: seen.append(output.detach().mean().item()))
    x, y = t.normal(16, 1, 8, 8), t.whole(10, 16)
    for _ in range(6):
        model.train()
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield optimizer.param_groups[1]["lr"]
        schedule.step()
        yield loss.item()
    hook.remove()
    model.eval()
    with torch.inference_mode():
        yield model(x).abs().sum().item()
    yield from seen
    yield model.layers[0].bn1.running_var.sum().item()


def seq2seq(torch, t):
    """A translator: padded batches, masks, tied weights, a warm-up, greedy decoding."""
    nn, F = torch.nn, torch.nn.functional
    words = 12

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(words, 16, padding_idx=0), nn.Embedding(words, 16, padding_idx=0)
            position = torch.arange(0, 50, dtype=torch.float).unsqueeze(1)
            rate = torch.exp(torch.arange(0, 16, 2).float() * (-math.log(10000.0) / 16))
            table = torch.zeros(50, 16)
            table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
            self.register_buffer("table", table.unsqueeze(0))
            self.body = nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True)
            self.out = nn.Linear(16, words)
            self.out.weight = self.target.weight

        def forward(self, s, r):
            a = self.source(s) * 4.0 + self.table[:, : s.size(1)]
            b = self.target(r) * 4.0 + self.table[:, : r.size(1)]
            causal = torch.triu(torch.ones(r.size(1), r.size(1), dtype=torch.bool), 1)
            pad = s == 0
            h = self.body(
                a,
                b,
                tgt_mask=causal,
                src_key_padding_mask=pad,
                tgt_key_padding_mask=r == 0,
                memory_key_padding_mask=pad,
            )
            return self.out(h)

    model = t.fill(Translator(), scale=0.2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 4, 1.0))
    s, r = t.whole(words - 1, 6, 7) + 1, t.whole(words - 1, 6, 6, seed=3) + 1
    s[0, 5:] = 0
    r[1, 4:] = 0
    for _ in range(5):
        logits = model(s, r[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, words), r[:, 1:].reshape(-1), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        yield nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()
        optimizer.step()
        schedule.step()
        yield loss.item()
    model.eval()
    with torch.no_grad():
        made = torch.full((6, 1), 1, dtype=torch.long)
        for _ in range(4):
            made = torch.cat([made, model(s, made)[:, -1].argmax(-1, keepdim=True)], dim=1)
    yield made.sum().item()


def gan(torch, t):
    """Two networks and two optimisers, with a penalty on the norm of a gradient."""
    nn = torch.nn
    bn = nn.BatchNorm1d(16)
    make = t.fill(nn.Sequential(nn.Linear(3, 16), bn, nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 2)), 1)
    judge = t.fill(nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)), 2)
    of_make = torch.optim.Adam(make.parameters(), 1e-3, (0.5, 0.999))
    of_judge = torch.optim.Adam(judge.parameters(), 1e-3, (0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    for i in range(5):
        real, fake = t.normal(16, 2, seed=i) * 0.5 + 1, make(t.normal(16, 3, seed=100 + i))
        judge.zero_grad()
        loss = bce(judge(real), torch.ones(16, 1)) + bce(judge(fake.detach()), torch.zeros(16, 1))
        share = torch.sigmoid(t.normal(16, 1, seed=200 + i))
        mixed = (share * real + (1 - share) * fake.detach()).requires_grad_(True)
        out = judge(mixed)
        (g,) = torch.autograd.grad(
            out, mixed, torch.ones_like(out), create_graph=True, retain_graph=True, only_inputs=True
        )
        penalty = ((g.norm(2, dim=1) - 1) ** 2).mean()
        (loss + penalty).backward()
        of_judge.step()
        make.zero_grad()
        fooled = bce(judge(fake), torch.ones(16, 1))
        fooled.backward()
        of_make.step()
        yield from (loss.item(), penalty.item(), fooled.item())


def lora(torch, t):
    """Layers replaced by name, frozen parameters, a checkpoint written and read, state that moves to another model."""
    nn, F = torch.nn, torch.nn.functional

    class LoRA(nn.Module):
        def __init__(self, base, rank=2):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.A = nn.Parameter(torch.zeros(rank, base.in_features))
            self.B = nn.Parameter(torch.zeros(base.out_features, rank))

        def forward(self, x):
            return self.base(x) + F.linear(F.linear(x, self.A), self.B) * 2.0

        @torch.no_grad()
        def merge(self):
            self.base.weight += self.B @ self.A * 2.0
            self.B.zero_()

    def build():
        net = t.fill(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)))
        for name, child in list(net.named_children()):
            if isinstance(child, nn.Linear):
                setattr(net, name, LoRA(child))
        return net

    net = build()
    with torch.no_grad():
        for i, (_, p) in enumerate(sorted(net.named_parameters())):
            if p.requires_grad:
                p.copy_(t.normal(*p.shape, seed=i) * 0.1)
    trained = [p for p in net.parameters() if p.requires_grad]
    yield sum(p.numel() for p in trained)
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    x, y = t.normal(12, 6), t.whole(3, 12)

    def step(net, optimizer):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(3):
        yield step(net, optimizer)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
        saved = torch.load(path, map_location="cpu", weights_only=True)
    other = build()
    yield len(other.load_state_dict(saved["net"], strict=True).missing_keys)
    again = torch.optim.AdamW([p for p in other.parameters() if p.requires_grad], lr=1.0)
    again.load_state_dict(saved["optimizer"])
    for _ in range(2):
        yield step(net, optimizer) - step(other, again)
    before = net(x)
    for child in net:
        if isinstance(child, LoRA):
            child.merge()
    yield float((net(x) - before).abs().max().item() < 1e-5)
    part = {k.replace("0.base", "first"): v for k, v in net.state_dict().items() if k.startswith("0.base")}
    taker = nn.ModuleDict({"first": nn.Linear(6, 8), "head": nn.Linear(8, 2)})
    report = taker.load_state_dict(part, strict=False)
    yield from (len(report.missing_keys), len(report.unexpected_keys), taker["first"](x).sum().item())


def language_model(torch, t):
    """A recurrent language model: state carried from part to part, packed sequences, accumulated gradients."""
    nn, F = torch.nn, torch.nn.functional
    embedding, rnn, head = (
        t.fill(nn.Embedding(15, 8)),
        t.fill(nn.LSTM(8, 12, 2, batch_first=True), 1),
        nn.Linear(12, 15),
    )
    model = nn.ModuleList([embedding, rnn, t.fill(head, 2)])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2, momentum=0.5, centered=True)
    text, state = t.whole(15, 4, 41), None
    for i in range(0, 40, 8):
        x, y = text[:, i : i + 8], text[:, i + 1 : i + 9]
        if state is not None:
            state = tuple(v.detach() for v in state)
        out, state = rnn(embedding(x), state)
        loss = F.cross_entropy(head(out).transpose(1, 2), y)
        (loss / 2).backward()
        if i % 16:
            optimizer.step()
            optimizer.zero_grad()
        yield loss.item()
    gru = t.fill(nn.GRU(8, 6, bidirectional=True))
    packed = nn.utils.rnn.pack_padded_sequence(t.normal(5, 3, 8), torch.tensor([5, 3, 1]))
    out, last = gru(packed)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(out, padding_value=-1.0)
    yield from (padded.sum().item(), last.sum().item(), lengths.sum().item())


SCRIPTS = [vae, resnet, seq2seq, gan, lora, language_model]
