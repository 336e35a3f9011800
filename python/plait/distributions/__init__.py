"""Probability distributions, under PyTorch's names: draws, densities, entropies, divergences.

A distribution has a batch shape, that of its parameters, and an event shape, that of one draw; draws have the sample
shape, the batch shape and the event shape. Gamma, Beta, Dirichlet, Poisson and what is made of them are not there: they
need samplers that the engine lacks.
"""

from typing import Any as _Any

from plait._engine.missing_names import absent as _absent
from plait._public import publish as _publish
from plait.distributions import constraints as constraints
from plait.distributions import transforms as transforms
from plait.distributions._continuous import Exponential as Exponential
from plait.distributions._continuous import Laplace as Laplace
from plait.distributions._continuous import Normal as Normal
from plait.distributions._continuous import Uniform as Uniform
from plait.distributions._discrete import Bernoulli as Bernoulli
from plait.distributions._discrete import Categorical as Categorical
from plait.distributions._discrete import OneHotCategorical as OneHotCategorical
from plait.distributions._distribution import Distribution as Distribution
from plait.distributions._independent import Independent as Independent
from plait.distributions._kl import kl_divergence as kl_divergence
from plait.distributions._kl import register_kl as register_kl
from plait.distributions._multivariate import MultivariateNormal as MultivariateNormal
from plait.distributions._transformed import LogNormal as LogNormal
from plait.distributions._transformed import TransformedDistribution as TransformedDistribution
from plait.distributions.transforms import AffineTransform as AffineTransform
from plait.distributions.transforms import ComposeTransform as ComposeTransform
from plait.distributions.transforms import ExpTransform as ExpTransform
from plait.distributions.transforms import SigmoidTransform as SigmoidTransform
from plait.distributions.transforms import TanhTransform as TanhTransform
from plait.distributions.transforms import Transform as Transform

_publish(globals())


def __getattr__(name: str) -> _Any:
    raise _absent("distributions", "plait.distributions", name)
