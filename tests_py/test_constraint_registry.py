"""The transforms that belong to constraints: `biject_to`, `transform_to` and tables of a program's own."""

import json
import sys
from functools import partial
from pathlib import Path

import plait
import pytest
from plait import distributions as D
from plait.distributions import constraints, transforms
from plait.distributions.constraint_registry import ConstraintRegistry, biject_to, transform_to

GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(GOLDEN))
from distribution_cases import CONSTRAINTS, kinds  # noqa: E402

FACTS = json.loads((GOLDEN / "distributions.json").read_text("utf-8"))
REGISTRIES = {"biject_to": D.biject_to, "transform_to": D.transform_to}
t = partial(plait.tensor, dtype=plait.float64)


def constraint(name):
    return eval(CONSTRAINTS[name][0], {"C": constraints, "t": lambda *v: t(list(v))})


@pytest.mark.parametrize("registry", REGISTRIES)
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_transforms_are_those_of_pytorch(registry, name):
    want = FACTS[registry][name]
    if "error" in want:
        with pytest.raises(NotImplementedError, match=want["error"]):
            REGISTRIES[registry](constraint(name))
        return
    f, x = REGISTRIES[registry](constraint(name)), t(CONSTRAINTS[name][1])
    y = f(x)
    near = partial(plait.allclose, rtol=1e-9, atol=1e-12)
    assert kinds(f) == want["kinds"] and f.bijective == want["bijective"]
    assert [f.domain.event_dim, f.codomain.event_dim] == want["event_dims"]
    assert constraint(name).check(y).all() and f.codomain.check(y).all() and near(y, t(want["y"]))
    back = f.inv(y)
    assert near(back, t(want["inverse"])) and near(f(back), y)
    if want["bijective"]:
        assert near(back, x)
    assert list(f.inverse_shape(y.shape)) == want["inverse_shape"] == list(back.shape)
    if want["slope"] is None:
        with pytest.raises(NotImplementedError):
            f.log_abs_det_jacobian(x, y)
    else:
        got = f.log_abs_det_jacobian(x, y)
        assert got.shape == t(want["slope"]).shape and near(got, t(want["slope"]))


def test_slopes_are_logarithms_of_determinants():
    for name in ("interval", "less_than", "greater_than of a tensor"):
        f, x = biject_to(constraint(name)), t([0.3, -0.7])
        jacobian = plait.func.jacrev(f)(x)
        assert plait.allclose(f.log_abs_det_jacobian(x, f(x)).sum(), jacobian.det().abs().log())


def test_gradients_reach_bounds_and_numbers():
    high, x = t([3.0, 4.0]).requires_grad_(), t([0.5, -2.0]).requires_grad_()
    y = transform_to(constraints.interval(0.0, high))(x)
    y.sum().backward()
    assert plait.allclose(high.grad, x.detach().sigmoid()) and x.grad.all()


def test_parameters_of_distributions():
    u = plait.zeros(3, dtype=plait.float64)
    assert D.Normal(u, transform_to(constraints.positive)(u)).scale.tolist() == [1, 1, 1]
    support = D.Independent(D.Uniform(u, u + 2), 1).support
    f = biject_to(support)
    assert f(u).tolist() == [1, 1, 1] and f.log_abs_det_jacobian(u, f(u)).shape == ()


def test_tables_of_a_program():
    table = ConstraintRegistry()

    class Even(constraints.Constraint):
        def check(self, value):
            return value % 2 == 0

    class Fourfold(Even):
        pass

    @table.register(Even)
    def double(constraint):
        return transforms.AffineTransform(0.0, 2.0)

    assert double(None).scale == 2 and table(Even())(t([3.0])).tolist() == [6]
    assert repr(Even()) == "Even()" and Even().want == "as Even() says" and not biject_to._factories.get(Even)
    with pytest.raises(NotImplementedError, match="Cannot transform Fourfold constraints"):
        table(Fourfold())
    assert table.register(Fourfold(), double) is double and isinstance(table(Fourfold()), transforms.AffineTransform)
    with pytest.raises(NotImplementedError, match="Constraint has no check"):
        constraints.Constraint().check(t([1.0]))
    for wrong in (3, int, None):
        with pytest.raises(TypeError, match="want constraint to be a Constraint or a class of them, got"):
            table.register(wrong, double)
    with pytest.raises(NotImplementedError, match="Cannot transform int constraints"):
        table(3)


def test_classes_of_constraints():
    assert isinstance(constraints.positive, constraints.greater_than)
    assert isinstance(constraints.unit_interval, constraints.interval) and constraints.unit_interval.upper_bound == 1
    both = constraints.cat([constraints.positive, constraints.boolean], 1)
    assert (both.lengths, both.dim, both.is_discrete, both.event_dim) == ([1, 1], 1, True, 0)
    none = constraints.independent(constraints.real, 0)
    assert repr(none) == "IndependentConstraint(Real(), 0)" and none.check(plait.zeros(2, 0)).shape == (2, 0)
    assert constraints.independent(constraints.real, 1).check(plait.zeros(2, 0)).tolist() == [True, True]
