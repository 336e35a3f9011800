"""Distributions of counts."""

from __future__ import annotations

from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions._discrete import Categorical, odds
from plait.distributions._distribution import Distribution, Elementwise
from plait.distributions._samplers import log_gamma
from plait.distributions.constraints import Constraint
from plait.nn import functional as F


def _whole(v: Tensor) -> Tensor:
    return (v >= 0) & (v == v.floor())


class Poisson(Elementwise):
    """The number of events, of which there are `rate` in the mean, each by itself."""

    support = constraints.nonnegative_integer

    rate: Tensor

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, rate=rate)
        self._check("rate", self.rate, self.rate >= 0, "0 or more")

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        """The likeliest number."""
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with plait.no_grad():
            return plait.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return plait.xlogy(value, self.rate) - self.rate - (value + 1).lgamma()


class Geometric(Elementwise):
    """The number of failures before the first success, of probability probs, or sigmoid(logits)."""

    support = constraints.nonnegative_integer

    probs: Tensor
    logits: Tensor

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        p, given = odds("Geometric", probs, logits)
        self._set(validate_args, probs=p, logits=given)
        self._check("probs", self.probs, (self.probs > 0) & (self.probs <= 1), "above 0, and at most 1")

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        """The likeliest number."""
        return plait.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with plait.no_grad():
            return (self._uniform(sample_shape).log() / plait.log1p(-self.probs)).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return plait.special.xlog1py(value, -self.probs) + self.probs.log()

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs

    def _shown(self) -> dict[str, Tensor]:
        return {"probs": self.probs}


class NegativeBinomial(Elementwise):
    """The number of successes, of probability probs, or sigmoid(logits), before total_count failures."""

    support = constraints.nonnegative_integer

    total_count: Tensor
    probs: Tensor
    logits: Tensor

    def __init__(
        self,
        total_count: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        p, given = odds("NegativeBinomial", probs, logits)
        count = total_count.to(p.dtype) if isinstance(total_count, Tensor) else float(total_count)
        self._set(validate_args, probs=p, logits=given, total_count=count)
        self._check("total_count", self.total_count, self.total_count >= 0, "0 or more")
        self._check("probs", self.probs, (self.probs >= 0) & (self.probs < 1), "from 0 to below 1")

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        """The likeliest number."""
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with plait.no_grad():
            rate = (log_gamma(self.total_count.expand(shape)) + self.logits).exp()
            return plait.poisson(plait.where(self.total_count == 0, 0.0, rate))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        n = self.total_count
        ways = (n + value).lgamma() - (value + 1).lgamma() - n.lgamma()
        ways = plait.where(n + value == 0, 0.0, ways)  # no trial at all has one way
        return n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits) + ways

    def _shown(self) -> dict[str, Tensor]:
        return {"total_count": self.total_count, "probs": self.probs}


class Binomial(Elementwise):
    """The number of successes, of probability probs, or sigmoid(logits), in total_count trials."""

    total_count: Tensor
    probs: Tensor
    logits: Tensor

    def __init__(
        self,
        total_count: Tensor | float = 1,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        p, given = odds("Binomial", probs, logits)
        count = total_count.to(p.dtype) if isinstance(total_count, Tensor) else float(total_count)
        self._set(validate_args, probs=p, logits=given, total_count=count)
        self._check("total_count", self.total_count, _whole(self.total_count), "a whole number of 0 or more")
        self._check("probs", self.probs, (self.probs >= 0) & (self.probs <= 1), "from 0 to 1")

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        """The likeliest number."""
        return plait.minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with plait.no_grad():
            return plait.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        n = self.total_count
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * F.logsigmoid(self.logits) + (n - value) * F.logsigmoid(-self.logits)

    def _same_count(self, what: str) -> int:
        count = int(self.total_count.max())
        if not bool((self.total_count == count).all()):
            raise NotImplementedError(f"Binomial: {what} wants the same total_count everywhere, got {self.total_count}")
        return count

    def entropy(self) -> Tensor:
        self._same_count("entropy")
        log_prob = self.log_prob(self.enumerate_support())
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._same_count("enumerate_support")
        return self._support(plait.arange(count + 1, dtype=self.probs.dtype, device=self.probs.device), expand)

    def _shown(self) -> dict[str, Tensor]:
        return {"total_count": self.total_count, "probs": self.probs}


class Multinomial(Distribution):
    """How often each class comes in total_count draws of `Categorical`.

    Args:
        total_count: the number of draws
        probs: [..., n], probabilities up to a factor, or
        logits: [..., n], their logarithms
        validate_args: whether parameters and values are checked
    """

    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int) or total_count < 0:
            raise ValueError(f"Multinomial: want total_count to be a whole number of 0 or more, got {total_count!r}")
        self.total_count = total_count
        self._classes = Categorical(probs, logits, validate_args)
        super().__init__(self._classes.batch_shape, self._classes.probs.shape[-1:], validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def probs(self) -> Tensor:
        """The probabilities of classes."""
        return self._classes.probs

    @property
    def logits(self) -> Tensor:
        """Their logarithms."""
        return self._classes.logits

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self._classes.sample((self.total_count, *sample_shape))
        counts = plait.zeros(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device)
        index = drawn.movedim(0, -1)
        return counts.scatter_add(-1, index, plait.ones_like(index, dtype=counts.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        logits, value = plait.broadcast_tensors(self.logits, value)
        terms = plait.where((value == 0) & (logits == -plait.inf), 0.0, logits * value)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + terms.sum(-1)

    def entropy(self) -> Tensor:
        n, p = self.total_count, self.probs
        counts = plait.arange(1, n + 1, dtype=p.dtype, device=p.device).reshape(-1, *(1 for _ in p.shape))
        pmf = Binomial(n, probs=p, validate_args=False).log_prob(counts.expand(n, *p.shape)).exp()
        expected = (pmf * (counts + 1).lgamma()).sum((0, -1))
        entropy: Tensor = n * self._classes.entropy() - plait.tensor(float(n + 1), dtype=p.dtype).lgamma().to(p.device)
        return entropy + expected

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        shape = (*batch_shape, self.probs.shape[-1])
        return Multinomial(self.total_count, logits=self.logits.expand(shape), validate_args=False)

    def __repr__(self) -> str:
        return f"Multinomial(total_count: {self.total_count}, probs: {self.probs.shape})"
