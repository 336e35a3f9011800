"""Distributions that PyTorch's numbers are kept of, as expressions of D, the module, and t, which makes float64."""

CASES = {
    "Bernoulli": ("Bernoulli(t(0.25, 0.8))", [0.0, 1.0]),
    "Beta": ("Beta(t(0.5, 2.5), t(1.5, 4))", [0.1, 0.6]),
    "Binomial": ("Binomial(7, t(0.25, 0.8))", [2.0, 7.0]),
    "Cauchy": ("Cauchy(t(0.5, -1), t(1, 2))", [3.0, -4.0]),
    "Chi2": ("Chi2(t(1, 5.5))", [0.3, 7.0]),
    "ContinuousBernoulli": ("ContinuousBernoulli(t(0.2, 0.5, 0.5004, 0.9))", [0.3, 0.7, 0.2, 0.9]),
    "Dirichlet": ("Dirichlet(t([0.5, 2, 3], [1, 1, 1.5]))", [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]),
    "Exponential": ("Exponential(t(0.5, 2))", [3.0, 0.1]),
    "FisherSnedecor": ("FisherSnedecor(t(3, 5), t(4.5, 10))", [0.7, 2.0]),
    "Gamma": ("Gamma(t(0.5, 3), t(2, 0.25))", [0.1, 9.0]),
    "GeneralizedPareto": ("GeneralizedPareto(t(0, 1, 2), t(1, 2, 0.5), t(0.3, 0, -0.5))", [2.0, 4.0, 2.5]),
    "Geometric": ("Geometric(t(0.25, 0.8))", [3.0, 0.0]),
    "Gumbel": ("Gumbel(t(0.5, -1), t(1, 2))", [3.0, -4.0]),
    "HalfCauchy": ("HalfCauchy(t(1, 2))", [3.0, 0.5]),
    "HalfNormal": ("HalfNormal(t(1, 2))", [3.0, 0.5]),
    "InverseGamma": ("InverseGamma(t(2.5, 3), t(2, 0.25))", [0.4, 2.0]),
    "Kumaraswamy": ("Kumaraswamy(t(0.5, 3), t(2, 1.5))", [0.1, 0.7]),
    "Laplace": ("Laplace(t(0.5, -1), t(1, 2))", [3.0, -4.0]),
    "LogNormal": ("LogNormal(t(0.5, -1), t(1, 0.5))", [3.0, 0.4]),
    "LKJCholesky": ("LKJCholesky(3, t(0.5, 2))", [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [-0.36, 0.48, 0.8]]),
    "LogisticNormal": ("LogisticNormal(t([0, 1], [2, -1]), t([1, 2], [1, 0.5]))", [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]),
    "LowRankMultivariateNormal": (
        "LowRankMultivariateNormal(t([0, 1, 2], [1, -1, 0]), t([1, 0.5], [0, 2], [-1, 1]), t(1, 2, 0.5))",
        [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]],
    ),
    "MixtureSameFamily": (
        "MixtureSameFamily(D.Categorical(t([1, 2, 1], [1, 1, 3])), D.Normal(t([0, 1, 5], [1, 2, -4]), t(1, 2, 0.5)))",
        [0.7, -3.5],
    ),
    "MixtureSameFamily of vectors": (
        "MixtureSameFamily(D.Categorical(t(1, 3)), D.Independent(D.Normal(t([0, 1], [2, 3]), t([1, 2], [1, 1])), 1))",
        [0.5, 2.0],
    ),
    "Multinomial": ("Multinomial(5, t([1, 2, 1], [1, 1, 3]))", [[1.0, 3.0, 1.0], [0.0, 0.0, 5.0]]),
    "NegativeBinomial": ("NegativeBinomial(t(3, 2.5), t(0.25, 0.8))", [2.0, 7.0]),
    "Normal": ("Normal(t(0.5, -1), t(1, 2))", [3.0, -4.0]),
    "OneHotCategorical": ("OneHotCategorical(t([1, 2, 1], [1, 1, 3]))", [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    "MultivariateNormal": ("MultivariateNormal(t(0, 1), t([1, 0.5], [0.5, 2]))", [[0.2, 0.3], [0.6, -1.3]]),
    "Pareto": ("Pareto(t(1, 2), t(3.5, 2.25))", [3.0, 2.5]),
    "Poisson": ("Poisson(t(0.5, 20))", [2.0, 17.0]),
    "RelaxedBernoulli": ("RelaxedBernoulli(t(0.7), t(0.25, 0.8))", [0.3, 0.9]),
    "RelaxedOneHotCategorical": (
        "RelaxedOneHotCategorical(t(0.7), t([1, 2, 1], [1, 1, 3]))",
        [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]],
    ),
    "StudentT": ("StudentT(t(1.5, 5, 0.5), t(0.5, -1, 0), t(1, 2, 1))", [3.0, -4.0, 0.5]),
    "TransformedDistribution": (
        "TransformedDistribution(D.Gamma(t(2, 3), t(1, 0.5)), [D.transforms.PowerTransform(t(-0.5)), "
        "D.AffineTransform(1.0, 2.0)])",
        [3.0, 2.5],
    ),
    "TransformedDistribution of vectors": (
        "TransformedDistribution(D.Normal(t([0, 1], [2, 3]), t([1, 2], [1, 1])), "
        "[D.transforms.StickBreakingTransform(), D.AffineTransform(t(0, 1, 2), t(1, -2, 3))])",
        [[0.2, 0.4, 3.5], [0.6, 0.4, 2.3]],
    ),
    "Uniform": ("Uniform(t(0.25, 1.5), t(0.75, 2))", [0.5, 1.6]),
    "VonMises": ("VonMises(t(0.5, -1), t(0.7, 30))", [3.0, -1.2]),
    "Wishart": ("Wishart(t(3, 5.5), t([1, 0.5], [0.5, 2]))", [[2.0, 0.5], [0.5, 3.0]]),
    "Weibull": ("Weibull(t(1, 2), t(0.7, 3))", [0.4, 2.5]),
}

# Of each kind, those whose divergences from one another are kept; and others of the same family.
PAIRED = [
    "Bernoulli", "Beta", "Binomial", "Cauchy", "ContinuousBernoulli of two", "Dirichlet", "Exponential", "Gamma",
    "Geometric", "Gumbel", "HalfNormal", "Laplace", "LogNormal", "LowRankMultivariateNormal", "Normal",
    "OneHotCategorical", "Pareto", "Poisson", "Uniform",
]  # fmt: skip
OTHERS = {
    "Bernoulli": "Bernoulli(t(0.5, 0.9))",
    "Beta": "Beta(t(2, 3), t(0.5, 1))",
    "Binomial": "Binomial(7, t(0.5, 0.9))",
    "Cauchy": "Cauchy(t(1, 1), t(0.5, 3))",
    "ContinuousBernoulli of two": "ContinuousBernoulli(t(0.3, 0.5))",
    "Dirichlet": "Dirichlet(t([1.5, 2, 1], [2, 1, 3]))",
    "Exponential": "Exponential(t(1, 3))",
    "Gamma": "Gamma(t(1.5, 2), t(1, 0.5))",
    "Geometric": "Geometric(t(0.5, 0.9))",
    "Gumbel": "Gumbel(t(1, 1), t(0.5, 3))",
    "HalfNormal": "HalfNormal(t(2, 3))",
    "Laplace": "Laplace(t(1, 1), t(0.5, 3))",
    "LogNormal": "LogNormal(t(1, 1), t(0.5, 3))",
    "LowRankMultivariateNormal": "MultivariateNormal(t([0, 1, 2], [1, -1, 0]), t([2, 1, 0], [1, 3, 0.5], [0, 0.5, 1]))",
    "Normal": "Normal(t(1, 1), t(0.5, 3))",
    "OneHotCategorical": "OneHotCategorical(t([3, 2, 1], [1, 2, 3]))",
    "Pareto": "Pareto(t(0.5, 3), t(1.5, 2.5))",
    "Poisson": "Poisson(t(1, 15))",
    "Uniform": "Uniform(t(-1, 0.5), t(3, 2.5))",
}
MORE = {"ContinuousBernoulli of two": "ContinuousBernoulli(t(0.2, 0.7))"}


# Transforms, as expressions of T too, the module of them; and values that they take.
TRANSFORMS = {
    "AbsTransform": ("T.AbsTransform()", [0.5, -2.0]),
    "AffineTransform of vectors": ("T.AffineTransform(t(1, 2), t(-2, 3), event_dim=1)", [[0.5, -2.0], [1.0, 0.0]]),
    "CatTransform": (
        "T.CatTransform([T.ExpTransform(), T.TanhTransform()], 1, [2, 1])",
        [[0.5, -1.0, 2.0], [0.1, 0.2, 0.3]],
    ),
    "CatTransform of vectors": (
        "T.CatTransform([T.IndependentTransform(T.ExpTransform(), 1), T.AffineTransform(1.0, 2.0)], -1, [2, 1])",
        [[0.5, -1.0, 2.0], [0.1, 0.2, 0.3]],
    ),
    "ComposeTransform": (
        "T.ComposeTransform([T.ExpTransform(), T.StickBreakingTransform(), T.AffineTransform(1.0, 2.0)])",
        [[0.5, -1.0], [0.1, 0.2]],
    ),
    "CorrCholeskyTransform": ("T.CorrCholeskyTransform()", [[0.5, -1.0, 0.3], [0.1, 0.2, -0.7]]),
    "CumulativeDistributionTransform": ("T.CumulativeDistributionTransform(D.Normal(t(0.5), t(2)))", [0.5, -2.0]),
    "ExpTransform": ("T.ExpTransform()", [0.5, -2.0]),
    "IndependentTransform": ("T.IndependentTransform(T.ExpTransform(), 1)", [[0.5, -2.0], [1.0, 0.0]]),
    "LowerCholeskyTransform": ("T.LowerCholeskyTransform()", [[0.5, 9.0], [1.0, -0.5]]),
    "PositiveDefiniteTransform": ("T.PositiveDefiniteTransform()", [[0.5, 9.0], [1.0, -0.5]]),
    "PowerTransform": ("T.PowerTransform(t(2, -0.5))", [0.5, 3.0]),
    "ReshapeTransform": ("T.ReshapeTransform((4,), (2, 2))", [[1.0, 2.0, 3.0, 4.0]]),
    "SigmoidTransform": ("T.SigmoidTransform()", [0.5, -2.0]),
    "SoftmaxTransform": ("T.SoftmaxTransform()", [[0.5, -2.0, 1.0]]),
    "SoftplusTransform": ("T.SoftplusTransform()", [0.5, -2.0]),
    "StackTransform": ("T.StackTransform([T.ExpTransform(), T.TanhTransform()], -1)", [[0.5, -1.0], [0.1, 0.2]]),
    "StickBreakingTransform": ("T.StickBreakingTransform()", [[0.5, -1.0, 0.3], [0.1, 0.2, -0.7]]),
    "TanhTransform": ("T.TanhTransform()", [0.5, -2.0]),
    "identity_transform": ("T.identity_transform", [0.5, -2.0]),
}


def made(of, expression, tensor):
    """Returns the distribution of an expression, of a module with PyTorch's names."""
    return eval(f"D.{expression}", {"D": of, "t": lambda *values: tensor(list(values))})


def expression(name):
    """Returns the expression of a case."""
    return MORE[name] if name in MORE else CASES[name][0]


# Constraints, and numbers of which their transforms make values; None where no transform is registered.
CONSTRAINTS = {
    "real": ("C.real", [0.5, -2.0]),
    "real_vector": ("C.real_vector", [[0.5, -2.0], [1.0, 3.0]]),
    "positive": ("C.positive", [0.5, -2.0]),
    "nonnegative": ("C.nonnegative", [0.5, -2.0]),
    "greater_than": ("C.greater_than(3.0)", [0.5, -2.0]),
    "greater_than of a tensor": ("C.greater_than(t(3, -1))", [0.5, -2.0]),
    "greater_than_eq": ("C.greater_than_eq(-1)", [0.5, -2.0]),
    "less_than": ("C.less_than(-1.0)", [0.5, -2.0]),
    "unit_interval": ("C.unit_interval", [0.5, -2.0]),
    "interval of whole numbers": ("C.interval(0, 1)", [0.5, -2.0]),
    "interval": ("C.interval(-1.0, 3.0)", [0.5, -2.0]),
    "interval of tensors": ("C.interval(t(0, -1), t(1, 3))", [0.5, -2.0]),
    "half_open_interval": ("C.half_open_interval(0.5, 1)", [0.5, -2.0]),
    "simplex": ("C.simplex", [[0.5, -2.0, 1.0], [1.0, 3.0, 0.0]]),
    "lower_cholesky": ("C.lower_cholesky", [[0.5, -2.0], [1.0, 0.3]]),
    "corr_cholesky": ("C.corr_cholesky", [[0.5, -1.0, 0.2], [0.1, 0.3, 0.0]]),
    "positive_definite": ("C.positive_definite", [[0.5, -2.0], [1.0, 0.3]]),
    "positive_semidefinite": ("C.positive_semidefinite", [[0.5, -2.0], [1.0, 0.3]]),
    "independent": ("C.independent(C.interval(-1.0, 3.0), 2)", [[0.5, -2.0], [1.0, 0.3]]),
    "independent of no more": ("C.independent(C.positive, 0)", [0.5, -2.0]),
    "cat": ("C.cat([C.positive, C.real], -1, [2, 1])", [[0.5, -2.0, 1.0], [1.0, 3.0, 0.0]]),
    "cat of vectors": ("C.cat([C.real_vector, C.positive], -1, [2, 1])", [[0.5, -2.0, 1.0], [1.0, 3.0, 0.0]]),
    "stack": ("C.stack([C.positive, C.unit_interval], 1)", [[0.5, -2.0], [1.0, 0.3]]),
    "boolean": ("C.boolean", None),
    "dependent": ("C.dependent", None),
    "integer_interval": ("C.integer_interval(0, 3)", None),
    "lower_triangular": ("C.lower_triangular", None),
    "multinomial": ("C.multinomial(3)", None),
    "nonnegative_integer": ("C.nonnegative_integer", None),
    "one_hot": ("C.one_hot", None),
    "positive_integer": ("C.positive_integer", None),
    "square": ("C.square", None),
    "symmetric": ("C.symmetric", None),
    "independent of integers": ("C.independent(C.nonnegative_integer, 1)", None),
    "stack with integers": ("C.stack([C.positive, C.boolean])", None),
}


def kinds(transform):
    """Returns the names of the classes of a transform and of what it is made of."""
    found = [type(transform).__name__]
    for name in ("parts", "transforms"):
        found.extend(kinds(t) for t in getattr(transform, name, ()))
    if hasattr(transform, "base_transform"):
        found.append(kinds(transform.base_transform))
    return found
