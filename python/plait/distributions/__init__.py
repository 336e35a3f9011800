"""Probability distributions, under PyTorch's names: draws, densities, entropies, divergences.

A distribution has a batch shape, that of its parameters, and an event shape, that of one draw; draws have the sample
shape, the batch shape and the event shape.
"""

from typing import Any as _Any

from plait._engine.missing_names import absent as _absent
from plait._public import publish as _publish
from plait.distributions import _kl_pairs
from plait.distributions import constraints as constraints
from plait.distributions import transforms as transforms
from plait.distributions import utils as utils
from plait.distributions._arguments import constrain as _constrain
from plait.distributions._continuous import Exponential as Exponential
from plait.distributions._continuous import Laplace as Laplace
from plait.distributions._continuous import Normal as Normal
from plait.distributions._continuous import Uniform as Uniform
from plait.distributions._counts import Binomial as Binomial
from plait.distributions._counts import Geometric as Geometric
from plait.distributions._counts import Multinomial as Multinomial
from plait.distributions._counts import NegativeBinomial as NegativeBinomial
from plait.distributions._counts import Poisson as Poisson
from plait.distributions._discrete import Bernoulli as Bernoulli
from plait.distributions._discrete import Categorical as Categorical
from plait.distributions._discrete import OneHotCategorical as OneHotCategorical
from plait.distributions._discrete import OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough
from plait.distributions._distribution import Distribution as Distribution
from plait.distributions._distribution import ExponentialFamily as ExponentialFamily
from plait.distributions._gamma import Beta as Beta
from plait.distributions._gamma import Chi2 as Chi2
from plait.distributions._gamma import Dirichlet as Dirichlet
from plait.distributions._gamma import FisherSnedecor as FisherSnedecor
from plait.distributions._gamma import Gamma as Gamma
from plait.distributions._gamma import InverseGamma as InverseGamma
from plait.distributions._gamma import StudentT as StudentT
from plait.distributions._independent import Independent as Independent
from plait.distributions._kl import kl_divergence as kl_divergence
from plait.distributions._kl import register_kl as register_kl
from plait.distributions._matrices import LKJCholesky as LKJCholesky
from plait.distributions._matrices import Wishart as Wishart
from plait.distributions._mixture import MixtureSameFamily as MixtureSameFamily
from plait.distributions._multivariate import LowRankMultivariateNormal as LowRankMultivariateNormal
from plait.distributions._multivariate import MultivariateNormal as MultivariateNormal
from plait.distributions._relaxed import ContinuousBernoulli as ContinuousBernoulli
from plait.distributions._relaxed import RelaxedBernoulli as RelaxedBernoulli
from plait.distributions._relaxed import RelaxedOneHotCategorical as RelaxedOneHotCategorical
from plait.distributions._tails import Cauchy as Cauchy
from plait.distributions._tails import GeneralizedPareto as GeneralizedPareto
from plait.distributions._tails import Gumbel as Gumbel
from plait.distributions._tails import HalfCauchy as HalfCauchy
from plait.distributions._tails import HalfNormal as HalfNormal
from plait.distributions._tails import Kumaraswamy as Kumaraswamy
from plait.distributions._tails import Pareto as Pareto
from plait.distributions._tails import VonMises as VonMises
from plait.distributions._tails import Weibull as Weibull
from plait.distributions._transformed import LogisticNormal as LogisticNormal
from plait.distributions._transformed import LogNormal as LogNormal
from plait.distributions._transformed import TransformedDistribution as TransformedDistribution
from plait.distributions.constraint_registry import biject_to as biject_to
from plait.distributions.constraint_registry import transform_to as transform_to
from plait.distributions.transforms import AbsTransform as AbsTransform
from plait.distributions.transforms import AffineTransform as AffineTransform
from plait.distributions.transforms import CatTransform as CatTransform
from plait.distributions.transforms import ComposeTransform as ComposeTransform
from plait.distributions.transforms import CorrCholeskyTransform as CorrCholeskyTransform
from plait.distributions.transforms import CumulativeDistributionTransform as CumulativeDistributionTransform
from plait.distributions.transforms import ExpTransform as ExpTransform
from plait.distributions.transforms import IndependentTransform as IndependentTransform
from plait.distributions.transforms import LowerCholeskyTransform as LowerCholeskyTransform
from plait.distributions.transforms import PositiveDefiniteTransform as PositiveDefiniteTransform
from plait.distributions.transforms import PowerTransform as PowerTransform
from plait.distributions.transforms import ReshapeTransform as ReshapeTransform
from plait.distributions.transforms import SigmoidTransform as SigmoidTransform
from plait.distributions.transforms import SoftmaxTransform as SoftmaxTransform
from plait.distributions.transforms import SoftplusTransform as SoftplusTransform
from plait.distributions.transforms import StackTransform as StackTransform
from plait.distributions.transforms import StickBreakingTransform as StickBreakingTransform
from plait.distributions.transforms import TanhTransform as TanhTransform
from plait.distributions.transforms import Transform as Transform
from plait.distributions.transforms import identity_transform as identity_transform

_publish(globals())
_constrain(globals())


def __getattr__(name: str) -> _Any:
    raise _absent("distributions", "plait.distributions", name)
