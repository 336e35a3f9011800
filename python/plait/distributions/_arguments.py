"""Which values the parameters of the families have, by name, as `arg_constraints` says."""

from __future__ import annotations

from typing import Any

from plait.distributions import constraints as c

_VECTOR, _LOGITS = c.real_vector, {"probs": c.simplex, "logits": c.real_vector}
_ODDS = {"probs": c.unit_interval, "logits": c.real}
_LOCATED = {"loc": c.real, "scale": c.positive}
_MATRIX = {
    "covariance_matrix": c.positive_definite, "precision_matrix": c.positive_definite, "scale_tril": c.lower_cholesky,
}  # fmt: skip
_SHAPES = {"concentration1": c.positive, "concentration0": c.positive}
_SCALED = {"scale": c.positive}
_RATED = {"concentration": c.positive, "rate": c.positive}

ARGUMENTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("Bernoulli", "ContinuousBernoulli", "Geometric", "RelaxedBernoulli"), _ODDS),
    **dict.fromkeys(("Categorical", "Multinomial", "OneHotCategorical", "RelaxedOneHotCategorical"), _LOGITS),
    **dict.fromkeys(("Cauchy", "Gumbel", "Laplace", "LogNormal", "LogisticNormal", "Normal"), _LOCATED),
    **dict.fromkeys(("Beta", "Kumaraswamy"), _SHAPES),
    **dict.fromkeys(("Gamma", "InverseGamma"), _RATED),
    **dict.fromkeys(("HalfCauchy", "HalfNormal"), _SCALED),
    "Binomial": {"total_count": c.nonnegative_integer, **_ODDS},
    "Chi2": {"df": c.positive},
    "Dirichlet": {"concentration": c.independent(c.positive, 1)},
    "Exponential": {"rate": c.positive},
    "FisherSnedecor": {"df1": c.positive, "df2": c.positive},
    "GeneralizedPareto": {**_LOCATED, "concentration": c.real},
    "LKJCholesky": {"concentration": c.positive},
    "LowRankMultivariateNormal": {
        "loc": _VECTOR,
        "cov_factor": c.independent(c.real, 2),
        "cov_diag": c.independent(c.positive, 1),
    },
    "MultivariateNormal": {"loc": _VECTOR, **_MATRIX},
    "NegativeBinomial": {
        "total_count": c.greater_than_eq(0),
        "probs": c.half_open_interval(0.0, 1.0),
        "logits": c.real,
    },
    "Pareto": {"alpha": c.positive, "scale": c.positive},
    "Poisson": {"rate": c.nonnegative},
    "StudentT": {"df": c.positive, **_LOCATED},
    "VonMises": {"loc": c.real, "concentration": c.positive},
    "Weibull": {"scale": c.positive, "concentration": c.positive},
}


def _bounds(self: Any) -> dict[str, Any]:
    return {"low": c.less_than(self.high), "high": c.greater_than(self.low)}


def _of_wishart(self: Any) -> dict[str, Any]:
    return {**_MATRIX, "df": c.greater_than(self.event_shape[-1] - 1)}


# Of those whose constraints are those of the other parameters.
DEPENDING = {"Uniform": _bounds, "Wishart": _of_wishart}


def constrain(families: dict[str, Any]) -> None:
    """Gives the families their constraints; they check their parameters themselves, which takes fewer waits."""
    for name, found in ARGUMENTS.items():
        families[name].arg_constraints = dict(found)
    for name, depending in DEPENDING.items():
        words = "Which values the parameters have, by name."
        families[name].arg_constraints = property(depending, doc=words)
