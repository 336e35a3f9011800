"""`plait.nn.utils.prune`: which elements are kept at zero, and what a pruned module is."""

import copy
import pickle

import plait
import pytest
from plait import nn
from plait.nn.utils import prune


def linear(rows=3, columns=4):
    layer = nn.Linear(columns, rows)
    with plait.no_grad():
        layer.weight.copy_((plait.arange(float(rows * columns)) * 0.7).sin().reshape(rows, columns))
    return layer


def kept(layer, name="weight"):
    return getattr(layer, f"{name}_mask").bool().tolist()


def test_the_least_elements_are_pruned():
    layer = linear()
    before = layer.weight.detach().clone()
    assert prune.l1_unstructured(layer, "weight", 0.25) is layer
    threshold = before.abs().flatten().sort().values[2]
    assert kept(layer) == (before.abs() > threshold).tolist()
    assert (
        layer.weight.tolist() == (before * layer.weight_mask).tolist() and layer.weight_orig.tolist() == before.tolist()
    )
    assert [n for n, _ in layer.named_parameters()] == ["bias", "weight_orig"] and prune.is_pruned(layer)
    assert prune.is_pruned(nn.Sequential(layer)) and not prune.is_pruned(linear())


def test_training_goes_on_behind_the_mask():
    layer = linear()
    prune.l1_unstructured(layer, "weight", 5)
    optimizer = plait.optim.SGD(layer.parameters(), lr=0.5)
    x = plait.ones(2, 4)
    layer(x).sum().backward()
    assert layer.weight_orig.grad.tolist() == (2 * layer.weight_mask).tolist()
    optimizer.step()
    layer(x)
    assert layer.weight.tolist() == (layer.weight_orig * layer.weight_mask).tolist()
    state = copy.deepcopy(layer.state_dict())
    other = prune.identity(linear(), "weight")
    other.load_state_dict(state)
    assert other(x).tolist() == layer(x).tolist() == pickle.loads(pickle.dumps(layer))(x).tolist()


def test_slices_are_pruned():
    layer = linear(4, 3)
    norms = layer.weight.detach().norm(dim=1)
    prune.ln_structured(layer, "weight", 2, n=2, dim=0)
    rows = (norms >= norms.sort().values[2]).tolist()
    assert kept(layer) == [[r] * 3 for r in rows]
    plait.manual_seed(3)
    other = prune.random_structured(linear(4, 3), "weight", 0.5, dim=0)
    assert sorted(map(sum, kept(other))) == [0, 0, 3, 3]
    assert sum(map(sum, kept(prune.random_unstructured(linear(), "weight", 5)))) == 7


def test_methods_follow_one_another():
    layer = linear()
    prune.l1_unstructured(layer, "weight", 3)
    first = layer.weight_mask.clone()
    norms = layer.weight.detach().norm(dim=1)  # of what is left
    prune.ln_structured(layer, "weight", 1, n=2, dim=0)
    least = int(norms.argmin())
    assert kept(layer) == [[False] * 4 if i == least else row for i, row in enumerate(first.bool().tolist())]
    left = layer.weight_mask.sum().item()
    prune.l1_unstructured(layer, "weight", 2)
    assert layer.weight_mask.sum().item() == left - 2
    (hook,) = (h for _, h in prune._hooks(layer))
    assert isinstance(hook, prune.PruningContainer) and len(hook) == 3 and isinstance(hook[1], prune.LnStructured)


def test_parameters_together():
    a, b = linear(2, 2), linear(2, 3)
    values = plait.cat([a.weight.detach().flatten(), b.weight.detach().flatten()]).abs()
    threshold = values.sort().values[3]
    prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=0.4)
    assert (
        kept(a) == (a.weight_orig.abs() > threshold).tolist() and kept(b) == (b.weight_orig.abs() > threshold).tolist()
    )
    prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=1)
    assert (a.weight_mask.sum() + b.weight_mask.sum()).item() == 5
    with pytest.raises(TypeError, match="want an unstructured method, got LnStructured"):
        prune.global_unstructured([(a, "weight")], prune.LnStructured, amount=1)


def test_removing_keeps_the_zeros():
    layer = prune.custom_from_mask(linear(), "bias", plait.tensor([1, 0, 1]))
    value = layer.bias.tolist()
    assert prune.remove(layer, "bias") is layer and not prune.is_pruned(layer)
    assert layer.bias.tolist() == value and value[1] == 0 and isinstance(layer.bias, nn.Parameter)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    with pytest.raises(ValueError, match=r"'bias' of module Linear.* has to be pruned before"):
        prune.remove(layer, "bias")


def test_amounts_that_cannot_be():
    for amount, text in ((13, "number of parameters to prune=12"), (1.5, r"range \[0, 1\]"), (-1, "not negative")):
        with pytest.raises(ValueError, match=text):
            prune.l1_unstructured(linear(), "weight", amount)
    with pytest.raises(ValueError, match="multidimensional"):
        prune.random_structured(linear(), "bias", 1, dim=0)
    with pytest.raises(ValueError, match=r"got scores \[2\] for a tensor \[3, 4\]"):
        prune.l1_unstructured(linear(), "weight", 1, importance_scores=plait.ones(2))
    method = prune.LnStructured(1, 1, dim=1)
    assert method.prune(plait.tensor([[1.0, 2.0], [1.0, 3.0]])).tolist() == [[0, 2], [0, 3]]
