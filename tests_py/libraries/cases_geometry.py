"""Cases of libraries for optimisation by models, metrics, codebooks, rotations, stochastic equations and edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from cases_science import computed_in, step, weighed
from measures import filled, size_of, small, spread
from torch import nn

Cases = Iterator[tuple[str, Any]]


def botorch() -> Cases:
    from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound, qExpectedImprovement
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from botorch.sampling import SobolQMCNormalSampler
    from botorch.utils.sampling import draw_sobol_normal_samples, draw_sobol_samples

    def model() -> Any:
        x = spread(10, 2).abs()
        made = filled(SingleTaskGP(x, (x * 3).sin().sum(1, keepdim=True)))
        made.eval()
        return made

    def improvement() -> dict[str, float]:
        m, out = model(), {}
        best = m.train_targets.max()
        sampler = SobolQMCNormalSampler(torch.Size([32]), seed=3)
        for name, function, q in (
            ("q", qExpectedImprovement(m, best_f=best, sampler=sampler), 2),
            ("log", LogExpectedImprovement(m, best_f=best), 1),
        ):
            z = spread(4, q, 2).abs().requires_grad_()
            value = function(z)
            value.sum().backward()
            out[name], out[f"{name}, gradient"] = weighed(value), weighed(z.grad)
        return out

    def best() -> dict[str, float]:
        bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).to(torch.get_default_dtype())
        function = UpperConfidenceBound(model(), beta=0.1)
        _, value = optimize_acqf(function, bounds, q=1, num_restarts=2, raw_samples=16, options={"seed": 5})
        return {"value": float(value)}

    def drawn() -> dict[str, float]:
        bounds = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
        return {
            "points": weighed(draw_sobol_samples(bounds, 8, 2, seed=1)),
            "normal": weighed(draw_sobol_normal_samples(3, 16, seed=2)),
        }

    yield "Sobol samples", drawn
    yield "expected improvement", lambda: computed_in(torch.float64, improvement)
    yield "best points", lambda: computed_in(torch.float64, best)


def pytorch_metric_learning() -> Cases:
    from pytorch_metric_learning import losses, miners

    labels = torch.arange(12) % 4

    def measured(loss: Any, mined: bool = False) -> dict[str, float]:
        x = spread(12, 6).requires_grad_()
        pairs = (miners.MultiSimilarityMiner()(x, labels),) if mined else ()
        value = filled(loss)(x, labels, *pairs)
        value.backward()
        return {"loss": float(value), "gradient": weighed(x.grad)}

    for name in (
        "TripletMarginLoss", "ContrastiveLoss", "MultiSimilarityLoss", "NTXentLoss", "CircleLoss", "SupConLoss",
        "NPairsLoss", "GeneralizedLiftedStructureLoss", "AngularLoss",
    ):  # fmt: skip
        yield name, lambda n=name: measured(getattr(losses, n)())
    for name in ("ArcFaceLoss", "CosFaceLoss", "ProxyAnchorLoss", "SoftTripleLoss"):
        yield name, lambda n=name: measured(getattr(losses, n)(4, 6))
    yield "mined pairs", lambda: measured(losses.MultiSimilarityLoss(), mined=True)


def vector_quantize_pytorch() -> Cases:
    from vector_quantize_pytorch import FSQ, LFQ, VectorQuantize

    def codebook() -> dict[str, float]:
        model = VectorQuantize(dim=8, codebook_size=16, decay=0.8).to(torch.get_default_dtype())
        with torch.no_grad():
            for held in (model._codebook.embed, model._codebook.embed_avg):
                held.copy_(spread(1, 16, 8))
        x = spread(2, 6, 8, phase=0.4).requires_grad_()
        out, indices, loss = model(x)
        (out.square().sum() + loss.sum()).backward()
        moved = weighed(model._codebook.embed)
        return {"out": weighed(out), "indices": weighed(indices), "gradient": weighed(x.grad), "moved": moved}

    def levels(model: Any) -> dict[str, float]:
        out, indices, *_ = model(spread(2, 6, 4))
        return {"out": weighed(out), "indices": weighed(indices)}

    yield "VectorQuantize", codebook
    yield "FSQ", lambda: levels(FSQ([8, 5, 5, 5]))
    yield "LFQ", lambda: levels(LFQ(codebook_size=16, dim=4))


def rotary_embedding_torch() -> Cases:
    from rotary_embedding_torch import RotaryEmbedding

    def rotated() -> dict[str, float]:
        x = spread(1, 2, 5, 16)
        out = {"queries": weighed(RotaryEmbedding(dim=8).rotate_queries_or_keys(x))}
        both = RotaryEmbedding(dim=8, use_xpos=True).rotate_queries_and_keys(x, x.flip(0))
        return {**out, "both": weighed(both)}

    yield "rotations", rotated


def e3nn() -> Cases:
    from e3nn import nn as enn
    from e3nn import o3

    def harmonics() -> dict[str, float]:
        angles = torch.tensor([0.3, 0.5, 0.7]).to(torch.get_default_dtype())
        return {
            "harmonics": weighed(o3.spherical_harmonics([0, 1, 2, 3], spread(5, 3), True)),
            "wigner_3j": weighed(o3.wigner_3j(1, 1, 2).abs()),
            "wigner_D": weighed(o3.wigner_D(2, *angles)),
        }

    def product() -> dict[str, float]:
        model = o3.FullyConnectedTensorProduct("2x0e+1x1o", "1x0e+1x1o", "2x0e+1x1o+1x2e")
        x, y = spread(5, 5), spread(5, 4)
        return step(model, lambda: model(x, y).square().mean())

    def layers() -> dict[str, float]:
        model = nn.Sequential(o3.Linear("4x0e+2x1o", "2x0e+1x1o"), enn.BatchNorm("2x0e+1x1o"))
        x = spread(5, 10)
        return step(model, lambda: (model(x) - 1).square().mean())

    yield "spherical harmonics", harmonics
    yield "tensor product", product
    yield "layers", layers


def torchsde() -> Cases:
    import torchsde as sde

    class Field(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self) -> None:
            super().__init__()
            self.drift, self.noise = nn.Linear(3, 3), nn.Linear(3, 3)

        def f(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.drift(y)

        def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.noise(y).sigmoid()

    class Path:
        """Noise that is the same everywhere."""

        shape, device, levy_area_approximation = (4, 3), "cpu", "none"
        dtype = property(lambda self: torch.get_default_dtype())

        def __call__(self, begin: Any, end: Any = None, **options: Any) -> torch.Tensor:
            return spread(4, 3) * (float(end) - float(begin)) ** 0.5

    def solved(method: str) -> dict[str, float]:
        field, start = filled(Field()), spread(4, 3)
        times = torch.linspace(0.0, 1.0, 3)
        path: Any = Path()
        return step(field, lambda: sde.sdeint(field, start, times, bm=path, method=method, dt=0.1).square().mean())

    for method in ("euler", "milstein"):
        yield method, lambda m=method: computed_in(torch.float64, lambda: solved(m))


def torch_optimizer() -> Cases:
    import torch_optimizer as optimizers

    def steps(name: str) -> dict[str, float]:
        model, inputs, labels, losses = filled(small()), spread(16, 4), torch.arange(16) % 3, []
        optimizer = getattr(optimizers, name)(model.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        return {"loss": losses[0], "after": losses[-1], "parameters": size_of(list(model.parameters()))}

    for name in (
        "AccSGD", "AdaBound", "AdaMod", "AdamP", "AggMo", "Apollo", "DiffGrad", "LARS", "MADGRAD", "NovoGrad", "PID",
        "QHAdam", "QHM", "SGDP", "SGDW", "SWATS", "Shampoo", "Yogi",
    ):  # fmt: skip
        yield name, lambda n=name: steps(n)


def lightly() -> Cases:
    from lightly import loss as losses
    from lightly.models import modules

    def measured(loss: Any) -> dict[str, float]:
        head, a, b = modules.SimCLRProjectionHead(8, 8, 4), spread(6, 8), spread(6, 8, phase=0.7)
        return step(head, lambda: loss(head(a), head(b)))

    for name in ("NTXentLoss", "BarlowTwinsLoss", "VICRegLoss", "NegativeCosineSimilarity", "DCLLoss"):
        yield name, lambda n=name: measured(getattr(losses, n)())


LIBRARIES = (
    botorch, pytorch_metric_learning, vector_quantize_pytorch, rotary_embedding_torch, e3nn, torchsde, torch_optimizer,
    lightly,
)  # fmt: skip
