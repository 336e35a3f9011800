"""`plait.utils._pytree`: nested containers taken apart and put together."""

from collections import OrderedDict, defaultdict, deque, namedtuple

import plait
import pytest
from plait.utils import _pytree as pytree

Pair = namedtuple("Pair", ["first", "second"])
TREES = [
    1, None, [], (), {}, [1, (2, 3)], {"b": 1, "a": [2, None]}, OrderedDict(x=1, y=(2,)), Pair(1, [2, 3]),
    deque([1, 2], maxlen=3), defaultdict(list, {"k": [1, 2]}), [[[]], ((),), {"a": {}}],
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees_come_back(tree):
    leaves, spec = pytree.tree_flatten(tree)
    again = pytree.tree_unflatten(leaves, spec)
    assert again == tree and type(again) is type(tree)
    assert spec.num_leaves == len(leaves) and spec == pytree.tree_structure(tree)
    if isinstance(tree, deque):
        assert again.maxlen == tree.maxlen
    paths = pytree.tree_leaves_with_path(tree)
    assert [leaf for _, leaf in paths] == leaves
    assert all(pytree.key_get(tree, path) is leaf for path, leaf in paths)


def test_leaves_and_paths():
    tree = {"a": [1, 2], "b": Pair(3, (4,))}
    assert pytree.tree_leaves(tree) == [*pytree.tree_iter(tree)] == [1, 2, 3, 4]
    names = [pytree.keystr(path) for path, _ in pytree.tree_leaves_with_path(tree)]
    assert names == ["['a'][0]", "['a'][1]", "['b'].first", "['b'].second[0]"]
    assert pytree.tree_structure(tree).num_nodes == 8
    assert pytree.tree_flatten(tree, is_leaf=lambda x: isinstance(x, list))[0] == [[1, 2], 3, 4]
    assert pytree.tree_is_leaf(1) and not pytree.tree_is_leaf([]) and pytree.tree_structure(1).is_leaf()
    assert pytree.is_namedtuple(Pair) and pytree.is_namedtuple_instance(tree["b"]) and not pytree.is_namedtuple((1,))


def test_maps():
    tree = {"a": [1, 2], "b": 3.5}
    assert pytree.tree_map(lambda x: 2 * x, tree) == {"a": [2, 4], "b": 7.0}
    assert pytree.tree_map(lambda x, y: x + y, tree, {"b": 1, "a": [10, 20]}) == {"a": [11, 22], "b": 4.5}
    assert pytree.tree_map(lambda x, y: (x, y), [1, 2], [[3], {}]) == [(1, [3]), (2, {})]
    assert pytree.tree_map_only(int, str, tree) == {"a": ["1", "2"], "b": 3.5}
    assert pytree.tree_map_only(lambda x: x > 1, str, tree) == {"a": [1, "2"], "b": "3.5"}
    assert pytree.tree_map_with_path(lambda p, x: (len(p), x), tree) == {"a": [(2, 1), (2, 2)], "b": (1, 3.5)}
    seen = []
    assert pytree.tree_map_(seen.append, tree) is tree is pytree.tree_map_only_(float, seen.append, tree)
    assert seen == [1, 2, 3.5, 3.5]
    assert pytree.tree_all(lambda x: x > 0, tree) and pytree.tree_any(lambda x: x == 3.5, tree)
    assert pytree.tree_all_only(int, lambda x: x < 3, tree) and not pytree.tree_any_only(float, lambda x: x < 3, tree)
    spec = pytree.tree_structure({"a": [0, 0], "b": 0})
    assert pytree._broadcast_to_and_flatten({"a": 1, "b": 2}, spec) == [1, 1, 2]
    assert pytree._broadcast_to_and_flatten([1, 2], spec) is None


def test_what_does_not_fit_is_said():
    spec = pytree.tree_structure([1, [2]])
    with pytest.raises(ValueError, match="got 3 leaves, want 2"):
        pytree.tree_unflatten([1, 2, 3], spec)
    with pytest.raises(TypeError, match="want a TreeSpec, got list"):
        pytree.tree_unflatten([1], [1])
    with pytest.raises(ValueError, match="got int, want list"):
        pytree.tree_map(print, [1, [2]], [1, 2])
    with pytest.raises(ValueError, match="children of a list differ"):
        pytree.tree_map(print, [[1, 2]], [[1]])
    with pytest.raises(ValueError, match="children of a dict differ"):
        pytree.tree_map(print, {"a": 1}, {"b": 1})


def test_registered_classes():
    class Box:
        def __init__(self, inside, name):
            self.inside, self.name = inside, name

    class SubBox(Box):
        pass

    pytree.register_pytree_node(Box, lambda b: ([b.inside], b.name), lambda c, name: Box(*c, name))
    made = pytree.tree_map(lambda x: x + 1, [Box((1, 2), "n")])[0]
    assert made.inside == (2, 3) and made.name == "n"
    assert pytree.tree_is_leaf(SubBox(1, ""))
    with pytest.raises(ValueError, match="registered already"):
        pytree.register_pytree_node(Box, None, None)
    with pytest.raises(ValueError, match="flatten_with_keys_fn"):
        pytree.tree_leaves_with_path(Box(1, ""))


def test_tensors_are_leaves():
    x = plait.ones(2)
    doubled = pytree.tree_map_only(plait.Tensor, lambda t: t * 2, {"x": x, "n": 1})
    assert doubled["x"].tolist() == [2, 2] and doubled["n"] == 1 and plait.utils._pytree is pytree


def test_sizes_are_tuples():
    leaves, spec = pytree.tree_flatten(plait.ones(2, 3).shape)
    assert leaves == [2, 3] and pytree.tree_unflatten(leaves, spec) == (2, 3)
