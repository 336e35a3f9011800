"""Cases of libraries for probabilities, graphs, equations, explanations, training loops and reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from measures import facts, filled, size_of, small, spread
from torch import nn

Cases = Iterator[tuple[str, Any]]


def weighed(value: Any) -> float:
    """Returns a sum of all numbers in nested containers, in which each has a weight of its own."""
    if isinstance(value, dict):
        return weighed(list(value.values()))
    if isinstance(value, list | tuple):
        return sum(weighed(v) / (i + 1) for i, v in enumerate(value))
    v = torch.as_tensor(value).detach().double().flatten()
    return float((v * (torch.arange(v.numel()) % 7 + 1)).sum())


def step(model: nn.Module, loss_of: Callable[[], torch.Tensor]) -> dict[str, float]:
    """Returns the numbers of a step of a model that is filled first."""
    return facts(filled(model), loss_of)


def computed_in(dtype: torch.dtype, case: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Returns the numbers of a case in a dtype, whatever that of the others is."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return case()
    finally:
        torch.set_default_dtype(before)


def torchdiffeq() -> Cases:
    import torchdiffeq as td

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))

        def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(y) + torch.sin(t)

    def solved(solve: Callable[..., Any], **options: Any) -> dict[str, float]:
        return computed_in(torch.float64, lambda: numbers(solve, **options))  # rounding decides about steps

    def numbers(solve: Callable[..., Any], **options: Any) -> dict[str, float]:
        field, start = filled(Field()), spread(4, 3).requires_grad_()
        times = torch.linspace(0.0, 1.5, 5).requires_grad_()
        out = facts(field, lambda: solve(field, start, times, **options).square().mean())
        return {**out, "start": weighed(start.grad), "times": weighed(times.grad)}

    def event() -> dict[str, float]:
        def falls(t: torch.Tensor, state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            return state[1], torch.full_like(state[1], -9.8)

        start = torch.tensor([10.0]), torch.tensor([0.0])
        time, states = td.odeint_event(falls, start, torch.tensor(0.0), event_fn=lambda t, s: s[0], atol=1e-6)
        return {"time": float(time), "speed": float(states[1][-1])}

    adaptive = {"rtol": 1e-4, "atol": 1e-5}
    yield "dopri5", lambda: solved(td.odeint, **adaptive)
    yield "dopri8 by the adjoint", lambda: solved(td.odeint_adjoint, method="dopri8", **adaptive)
    yield "Runge-Kutta of order 4", lambda: solved(td.odeint, method="rk4", options={"step_size": 0.1})
    yield (
        "implicit Adams by the adjoint",
        lambda: solved(td.odeint_adjoint, method="implicit_adams", options={"step_size": 0.1}),
    )
    yield "event", event


def gpytorch() -> Cases:
    import gpytorch as gp

    normal = gp.distributions.MultivariateNormal

    def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = torch.linspace(0, 1, 12)[:, None]
        return x, torch.sin(6 * x[:, 0]) + spread(12, scale=0.1), torch.linspace(0, 1.2, 7)[:, None]

    class Exact(gp.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any, mean: Any, kernel: Any, out: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module, self.covar_module, self.out = mean, kernel, out

        def forward(self, x: torch.Tensor) -> Any:
            return self.out(self.mean_module(x), self.covar_module(x))

    class Variational(gp.models.ApproximateGP):
        def __init__(self, places: torch.Tensor) -> None:
            means = gp.variational.CholeskyVariationalDistribution(len(places))
            super().__init__(gp.variational.VariationalStrategy(self, places, means, True))
            self.mean_module, self.covar_module = (
                gp.means.ConstantMean(),
                gp.kernels.ScaleKernel(gp.kernels.RBFKernel()),
            )
            self.variational_strategy.variational_params_initialized.fill_(1)

        def forward(self, x: torch.Tensor) -> Any:
            return normal(self.mean_module(x), self.covar_module(x))

    def predicted(model: Any, likelihood: Any, places: torch.Tensor) -> dict[str, float]:
        model.eval(), likelihood.eval()
        with torch.no_grad():
            out = likelihood(model(places))
        return {"mean": weighed(out.mean), "variance": weighed(out.variance)}

    def exact(kernel: Any, tasks: int = 0) -> dict[str, float]:
        x, y, places = data()
        if tasks:
            y = torch.stack([y, y.square()], -1)
            mean: Any = gp.means.MultitaskMean(gp.means.ConstantMean(), tasks)
            likelihood: Any = gp.likelihoods.MultitaskGaussianLikelihood(tasks)
            model = Exact(x, y, likelihood, mean, kernel, gp.distributions.MultitaskMultivariateNormal)
        else:
            likelihood = gp.likelihoods.GaussianLikelihood()
            model = Exact(x, y, likelihood, gp.means.ConstantMean(), kernel, normal)
        loss = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)
        return {**step(model, lambda: -loss(model(x), y)), **predicted(model, likelihood, places)}

    def variational(likelihood: Any, classes: bool = False) -> dict[str, float]:
        x, y, places = data()
        model = Variational(x[::3].clone())
        loss = gp.mlls.VariationalELBO(likelihood, model, len(x))
        wanted = (y > 0).to(y.dtype) if classes else y
        filled(likelihood)
        return {**step(model, lambda: -loss(model(x), wanted)), **predicted(model, likelihood, places)}

    kernels = gp.kernels
    yield "exact", lambda: exact(kernels.ScaleKernel(kernels.RBFKernel()))
    yield "Matern and periodic kernels", lambda: exact(kernels.MaternKernel(1.5) * kernels.PeriodicKernel())
    yield "two tasks", lambda: exact(kernels.MultitaskKernel(kernels.RBFKernel(), num_tasks=2), 2)
    yield "variational", lambda: variational(gp.likelihoods.GaussianLikelihood())
    yield "variational classes", lambda: variational(gp.likelihoods.BernoulliLikelihood(), True)


def pyro() -> Cases:
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO, TraceEnum_ELBO, config_enumerate
    from pyro.infer.autoguide import AutoDelta, init_to_value
    from pyro.infer.mcmc.util import initialize_model
    from torch.distributions import constraints

    def start() -> Any:
        return init_to_value(values={"a": torch.tensor(0.1), "b": torch.tensor(0.2), "s": torch.tensor(1.0)})

    def line() -> None:
        x = spread(20)
        a, b = pyro.sample("a", dist.Normal(0.0, 2.0)), pyro.sample("b", dist.StudentT(5.0, 0.0, 2.0))
        s = pyro.sample("s", dist.LogNormal(0.0, 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(a * x + b, s), obs=2 * x + 0.5 + spread(20, scale=0.1, phase=0.3))

    def fitted(model: Any, guide: Any, elbo: Any) -> dict[str, float]:
        pyro.clear_param_store()
        svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), elbo)
        losses = [svi.step() for _ in range(5)]
        return {"loss": losses[0], "after": losses[-1], "parameters": weighed(dict(pyro.get_param_store().items()))}

    def mixture() -> dict[str, float]:
        @config_enumerate
        def model() -> None:
            x = torch.tensor([0.0, 1.0, 10.0, 11.0, 12.0])
            shares = pyro.param("shares", torch.tensor([0.4, 0.6]), constraint=constraints.simplex)
            places, scale = pyro.param("places", torch.tensor([1.0, 9.0])), torch.tensor(2.0)
            with pyro.plate("rows", len(x)):
                which = pyro.sample("which", dist.Categorical(shares))
                pyro.sample("x", dist.Normal(places[which], scale), obs=x)

        return fitted(model, lambda: None, TraceEnum_ELBO(max_plate_nesting=1))

    def energy() -> dict[str, float]:
        at, potential, _, _ = initialize_model(line, init_strategy=start())
        at = {k: v.clone().requires_grad_() for k, v in at.items()}
        value = potential(at)
        return {"energy": float(value), "gradient": weighed(torch.autograd.grad(value, list(at.values())))}

    def flows() -> dict[str, float]:

        out, x = {}, spread(5, 3)
        for name in ("planar", "radial", "spline", "householder"):
            transform = filled(getattr(dist.transforms, name)(3))
            base = dist.Normal(torch.zeros(3), 1.0).to_event(1)
            y = transform(x)  # the planar one has no inverse but by its cache
            out[name] = weighed(dist.TransformedDistribution(base, [transform]).log_prob(y))
        return out

    yield "variational", lambda: fitted(line, AutoDelta(line, init_loc_fn=start()), Trace_ELBO())
    yield "enumeration", mixture
    yield "energy of NUTS", energy
    yield "flows", flows


def captum() -> Cases:
    import captum.attr as ca

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3), nn.ReLU())
            self.head = nn.Linear(20, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x).flatten(1))

    def attributed() -> dict[str, float]:
        net = filled(Net()).eval()
        first, last = net.body[0], net.body[3]
        x, target = spread(2, 3, 10, 10).requires_grad_(), torch.tensor([1, 3])
        methods = {
            "integrated gradients": ca.IntegratedGradients(net), "saliency": ca.Saliency(net),
            "guided": ca.GuidedBackprop(net), "deconvolution": ca.Deconvolution(net), "DeepLift": ca.DeepLift(net),
            "GradCAM": ca.LayerGradCam(net, last), "guided GradCAM": ca.GuidedGradCam(net, last), "LRP": ca.LRP(net),
            "conductance": ca.LayerConductance(net, first), "ablation": ca.FeatureAblation(net),
        }  # fmt: skip
        return {name: weighed(m.attribute(x, target=target)) for name, m in methods.items()}

    yield "attributions", attributed


def ignite() -> Cases:
    import ignite.metrics as im
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import LRScheduler

    def trained() -> dict[str, float]:
        model, loss, losses = filled(small()), nn.CrossEntropyLoss(), []
        data = torch.utils.data.TensorDataset(spread(24, 4), torch.arange(24) % 3)
        loader = torch.utils.data.DataLoader(data, batch_size=6)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        trainer = create_supervised_trainer(model, optimizer, loss)
        schedule = LRScheduler(torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5))
        trainer.add_event_handler(Events.ITERATION_COMPLETED, schedule)
        trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda e: losses.append(e.state.output))
        trainer.run(loader, max_epochs=2)
        metrics: dict[str, Any] = {"accuracy": im.Accuracy(), "mean": im.Loss(loss), "f1": im.Fbeta(1.0)}
        found = create_supervised_evaluator(model, metrics).run(loader).metrics
        return {**found, "loss": losses[0], "after": losses[-1], "parameters": size_of(list(model.parameters()))}

    def measured() -> dict[str, float]:
        guess, truth = spread(30), spread(30, phase=0.4)
        images, others = spread(2, 3, 16, 16).abs(), spread(2, 3, 16, 16, phase=0.3).abs()
        out = {}
        for name, metric, given in (
            ("rmse", im.RootMeanSquaredError(), (guess, truth)), ("psnr", im.PSNR(1.0), (images, others)),
            ("ssim", im.SSIM(1.0, kernel_size=(5, 5)), (images, others)),
            ("spearman", im.regression.SpearmanRankCorrelation(), (guess, truth)),
            ("divergence", im.JSDivergence(), (spread(5, 3), spread(5, 3, phase=0.2))),
        ):  # fmt: skip
            metric.update(given)
            out[name] = float(metric.compute())
        return out

    yield "trainer and evaluator", trained
    yield "metrics", measured


def skorch() -> Cases:
    import skorch
    from skorch.callbacks import GradientNormClipping, LRScheduler

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = filled(small())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    def fitted() -> dict[str, float]:
        net = skorch.NeuralNetClassifier(
            Net, criterion=nn.CrossEntropyLoss, optimizer=torch.optim.Adam, lr=0.05, max_epochs=3, batch_size=6,
            verbose=0, callbacks=[("rates", LRScheduler("StepLR", step_size=1)), GradientNormClipping(1.0)],
        )  # fmt: skip
        net.fit(spread(24, 4).numpy(), (torch.arange(24) % 3).numpy())
        losses = net.history[:, ("train_loss", "valid_loss")]
        return {"losses": weighed(losses), "probabilities": weighed(net.predict_proba(spread(5, 4).numpy()))}

    yield "classifier", fitted


def stable_baselines3() -> Cases:
    import gymnasium as gym
    import numpy as np
    import stable_baselines3 as sb

    class World(gym.Env):  # type: ignore[misc]
        observation_space = gym.spaces.Box(-2, 2, (3,))

        def __init__(self, continuous: bool) -> None:
            self.action_space: Any = gym.spaces.Box(-1, 1, (2,)) if continuous else gym.spaces.Discrete(3)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            self.steps, self.at = 0, np.array([0.1, -0.2, 0.3], np.float32)
            return self.at, {}

        def step(self, action: Any) -> Any:
            self.steps, self.at = self.steps + 1, np.clip(self.at * 0.9 + 0.1 * np.sum(action, dtype=np.float32), -2, 2)
            return self.at, -float(np.abs(self.at).sum()), self.steps == 10, False, {}

    def policy(name: str, continuous: bool, **options: Any) -> Any:
        net = {"net_arch": [8], "activation_fn": nn.Tanh}
        made = getattr(sb, name)("MlpPolicy", World(continuous), policy_kwargs=net, device="cpu", seed=0, **options)
        made.learn(60)  # which draws random numbers
        filled(made.policy).zero_grad()
        return made

    def ppo() -> dict[str, float]:
        actor = policy("PPO", False, n_steps=16, batch_size=16).policy
        seen, actions, gain = spread(16, 3), torch.arange(16) % 3, spread(16, phase=0.2)

        def loss() -> torch.Tensor:
            values, logs, entropy = actor.evaluate_actions(seen, actions)
            return (values.flatten() - gain).square().mean() - (logs.exp() * gain).mean() - 0.01 * entropy.mean()

        chosen, _ = actor.predict(seen.numpy(), deterministic=True)
        return {**step(actor, loss), "chosen": weighed(chosen)}

    def values(name: str, continuous: bool, critic: Callable[[Any], Any]) -> dict[str, float]:
        made = policy(name, continuous, learning_starts=20, buffer_size=100)
        chosen, _ = made.predict(spread(5, 3).numpy(), deterministic=True)
        return {"chosen": weighed(chosen), "values": weighed(critic(made))}

    yield "PPO", lambda: computed_in(torch.float32, ppo)
    yield "DQN", lambda: computed_in(torch.float32, lambda: values("DQN", False, lambda m: m.q_net(spread(5, 3))))
    yield (
        "SAC",
        lambda: computed_in(torch.float32, lambda: values("SAC", True, lambda m: m.critic(spread(5, 3), spread(5, 2)))),
    )


def torch_geometric() -> Cases:
    import torch_geometric.nn as gnn
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader

    edges = torch.tensor([[0, 1, 1, 2, 3, 4, 5, 6, 7, 0, 2, 5], [1, 0, 2, 1, 4, 3, 6, 5, 0, 7, 5, 2]])
    labels, groups = torch.arange(8) % 3, torch.arange(8) // 4

    def nodes(name: str, **options: Any) -> dict[str, float]:
        model = getattr(gnn, name)(5, 6, 2, 3, **options)
        x = spread(8, 5)
        return step(model, lambda: nn.functional.cross_entropy(model(x, edges), labels))

    class Graphs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.pool = gnn.GATConv(5, 4, heads=2, edge_dim=3), gnn.TopKPooling(8, 0.5)
            self.last = nn.Linear(16, 2)

        def forward(self, d: Any) -> torch.Tensor:
            x = self.first(d.x, d.edge_index, d.edge_attr).relu()
            x, _, _, batch, _, _ = self.pool(x, d.edge_index, None, d.batch)
            both = [gnn.global_mean_pool(x, batch), gnn.global_max_pool(x, batch)]
            return self.last(torch.cat(both, 1))

    def graphs() -> dict[str, float]:
        kept = [(n, (edges < n).all(0)) for n in (3, 4, 6, 8)]
        data = [
            Data(x=spread(n, 5), edge_index=edges[:, k], edge_attr=spread(int(k.sum()), 3), y=torch.tensor([n % 2]))
            for n, k in kept
        ]
        model = Graphs()
        loader: Any = DataLoader(data, batch_size=2)
        return step(model, lambda: sum(nn.functional.cross_entropy(model(b), b.y) for b in loader))

    def gathered() -> dict[str, float]:
        made = gnn.aggr
        out = {}
        for name, module in {
            "median": made.MedianAggregation(), "softmax": made.SoftmaxAggregation(learn=True),
            "std": made.StdAggregation(), "sort": made.SortAggregation(2), "set2set": made.Set2Set(5, 2),
            "lstm": made.LSTMAggregation(5, 4), "attention": made.AttentionalAggregation(nn.Linear(5, 1)),
        }.items():  # fmt: skip
            x = spread(8, 5).requires_grad_()
            value = filled(module)(x, groups)
            value.square().sum().backward()
            out[name], out[f"{name}, gradient"] = weighed(value), weighed(x.grad)
        return out

    def weights() -> dict[str, float]:
        model, x = gnn.GCNConv(5, 4), spread(8, 5)
        by_edge = spread(12).abs().add(0.1).requires_grad_()  # their degrees are changed in place
        out = step(model, lambda: model(x, edges, by_edge).square().mean())
        return {**out, "weights": weighed(by_edge.grad)}

    def indexed() -> dict[str, float]:
        from torch_geometric import EdgeIndex

        index, perm = EdgeIndex(edges, sparse_size=(8, 8), is_undirected=True).sort_by("row")
        x = spread(8, 5).requires_grad_()
        out = index.matmul(x) + index.matmul(x, reduce="mean").square()
        out.square().sum().backward()
        squared, values = index.matmul(index)  # in whatever order
        dense = torch.zeros(8, 8, dtype=values.dtype).index_put(tuple(squared.as_tensor()), values)
        model = gnn.GraphSAGE(5, 6, 2, 3)
        more = step(model, lambda: model(x.detach(), index).square().mean())
        whole = [weighed(index[:, 2:9]), weighed(index[0]), weighed(torch.cat([index, index + 1], 1)), weighed(perm)]
        return {
            **more, "out": weighed(out), "slope": weighed(x.grad), "squared": weighed(dense),
            "parts": weighed(whole), "columns": weighed(index.to_sparse_csc().values()),
        }  # fmt: skip

    yield "indices of edges", indexed
    yield "GCN", lambda: nodes("GCN")
    yield "GAT", lambda: nodes("GAT", heads=2)
    yield "GraphSAGE", lambda: nodes("GraphSAGE", norm="batch", jk="cat")
    yield "GIN", lambda: nodes("GIN")
    yield "weights of edges", weights
    yield "batches of graphs", graphs
    yield "aggregations", gathered


def nflows() -> Cases:
    import nflows.transforms as nt
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.nn.nets import ResidualNet

    def flow(*transforms: Any) -> dict[str, float]:
        model, x = Flow(nt.CompositeTransform(transforms), StandardNormal([3])), spread(6, 3, scale=0.9)
        out = step(model, lambda: -model.log_prob(x).mean())
        there, slope = model._transform(x)
        back, _ = model._transform.inverse(there)
        return {**out, "slope": weighed(slope), "back": weighed(back)}

    def net(inputs: int, outputs: int) -> nn.Module:
        return ResidualNet(inputs, outputs, hidden_features=8, num_blocks=1)

    half, spline = torch.tensor([1, 0, 1]), {"tails": "linear", "num_bins": 4, "tail_bound": 2.0}
    coupled = nt.PiecewiseRationalQuadraticCouplingTransform
    yield (
        "affine autoregressive",
        lambda: flow(nt.MaskedAffineAutoregressiveTransform(3, 8), nt.ReversePermutation(3), nt.LeakyReLU()),
    )
    yield "coupled splines", lambda: flow(coupled(half, net, **spline), nt.LULinear(3))


def zuko() -> Cases:
    import zuko

    def flow(model: Any) -> dict[str, float]:
        x, known = spread(6, 3), spread(6, 4, phase=0.3)
        out = step(model, lambda: -model(known).log_prob(x).mean())
        transform = model(known).transform
        return {**out, "back": weighed(transform.inv(transform(x)))}

    small = {"features": 3, "context": 4, "hidden_features": [8]}
    yield "neural splines", lambda: flow(zuko.flows.NSF(transforms=2, **small))
    yield "masked autoregressive", lambda: flow(zuko.flows.MAF(transforms=2, **small))
    yield "continuous", lambda: computed_in(torch.float64, lambda: flow(zuko.flows.CNF(**small)))  # of adaptive steps
    yield "Bernstein polynomials", lambda: flow(zuko.flows.BPF(transforms=1, **small))


SCIENCE = {
    "captum": captum, "gpytorch": gpytorch, "nflows": nflows, "pyro-ppl": pyro, "pytorch-ignite": ignite,
    "skorch": skorch, "stable_baselines3": stable_baselines3, "torch_geometric": torch_geometric,
    "torchdiffeq": torchdiffeq, "zuko": zuko,
}  # fmt: skip
