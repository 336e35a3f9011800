"""The functions of layers at the top of the package take their arguments in the order of PyTorch's there."""

import plait
import plait.nn.functional as F
import pytest

X = plait.tensor([[[1.0, 2.0, 3.0, 4.0], [4.0, 0.0, 2.0, 6.0]]])


def same(a, b):
    assert a.tolist() == b.tolist()


def test_pooling_by_position():
    same(plait.avg_pool1d(X, 3, 1, 1, False, True), F.avg_pool1d(X, 3, 1, 1, count_include_pad=True))
    same(plait.avg_pool1d(X, 3, 1, 1, False, False), F.avg_pool1d(X, 3, 1, 1, count_include_pad=False))
    assert plait.avg_pool1d(X, 3, 1, 1, False, True)[0, 0, 0].item() == 1
    values, at = plait.adaptive_max_pool1d(X, 2)
    assert values.tolist() == [[[2, 4], [4, 6]]] and at.tolist() == [[[1, 3], [0, 3]]]


def test_norms_take_the_weight_first():
    mean, var = plait.tensor([1.0, 2.0]), plait.tensor([1.0, 4.0])
    weight, bias = plait.tensor([2.0, 3.0]), plait.tensor([0.5, 0.25])
    found = plait.batch_norm(X, weight, bias, mean, var, False, 0.1, 1e-5, True)
    same(found, F.batch_norm(X, mean, var, weight, bias))
    found = plait.instance_norm(X, weight, bias, None, None, True, 0.1, 1e-5, True)
    same(found, F.instance_norm(X, None, None, weight, bias))
    same(plait.layer_norm(X, [4], None, None, 1e-5, False), F.layer_norm(X, [4]))
    same(plait.group_norm(X, 2, weight, bias, 1e-5, False), F.group_norm(X, 2, weight, bias))
    same(plait.rms_norm(X, [4], None, None), F.rms_norm(X, [4]))


def test_convolutions_take_words_for_padding():
    weight = plait.ones(1, 2, 3)
    same(plait.conv1d(X, weight, None, 1, "same"), F.conv1d(X, weight, padding=1))
    same(plait.conv1d(X, weight, padding="valid"), F.conv1d(X, weight))


def test_tables_come_before_indices():
    weight = plait.tensor([[1.0, 5.0], [2.0, 4.0], [3.0, 3.0]], requires_grad=True)
    indices = plait.tensor([1, 0, 2, 2])
    same(plait.embedding(weight, indices), F.embedding(indices, weight))
    plait.embedding(weight, indices, 2).sum().backward()
    assert weight.grad.tolist() == [[1, 1], [1, 1], [0, 0]]
    offsets = plait.tensor([0, 3, 4])
    for mode, name in enumerate(("sum", "mean", "max")):
        out, bags, sizes, most = plait.embedding_bag(weight, indices, offsets, False, mode)
        same(out, F.embedding_bag(indices, weight, offsets, mode=name))
        assert bags.tolist() == [0, 0, 0, 1] and sizes.tolist() == [3, 1, 0]
    assert most.tolist() == [[2, 0], [2, 2], [0, 0]]
    out, _, sizes, most = plait.embedding_bag(weight, indices, offsets, False, 2, False, None, False, 2)
    assert out.tolist() == [[2, 5], [0, 0], [0, 0]] and sizes.tolist() == [2, 0, 0] and most[0].tolist() == [1, 0]
    with pytest.raises(ValueError, match="mode must be 0"):
        plait.embedding_bag(weight, indices, offsets, False, 3)


def test_dropout_wants_p_and_whether_it_trains():
    ones = plait.ones(50)
    for name in ("dropout", "alpha_dropout", "feature_alpha_dropout"):
        x = plait.ones(1, 50, 2)
        same(getattr(plait, name)(x, 0.5, False), x)
        assert (getattr(plait, name)(x, 0.5, True) != x).any()
        assert getattr(plait, name + "_")(x, 0.5, True) is x and (x != 1).any()
        with pytest.raises(TypeError, match="train"):
            getattr(plait, name)(ones, 0.5)


def test_slopes_come_from_the_generator():
    x = plait.full((20,), -1.0)
    made = [plait.rrelu(x, 0.2, 0.4, True, plait.Generator().manual_seed(3)) for _ in range(2)]
    same(*made)
    assert (made[0] >= -0.4).all() and (made[0] <= -0.2).all() and len(made[0].unique()) > 1
    assert plait.rrelu_(x, 0.2, 0.4, True, plait.Generator().manual_seed(3)) is x
    same(x, made[0])


def test_losses_take_the_number_of_a_reduction():
    rates, counts = plait.tensor([0.5, 1.5]), plait.tensor([1.0, 2.0])
    for number, name in enumerate(("none", "mean", "sum")):
        for log in (True, False):
            want = F.poisson_nll_loss(rates, counts, log_input=log, full=True, reduction=name)
            same(plait.poisson_nll_loss(rates, counts, log, True, 1e-8, number), want)
        same(
            plait.hinge_embedding_loss(rates, counts, 1.0, number),
            F.hinge_embedding_loss(rates, counts, reduction=name),
        )
        same(
            plait.binary_cross_entropy_with_logits(rates, rates, None, None, number),
            F.binary_cross_entropy_with_logits(rates, rates, reduction=name),
        )
        same(
            plait.margin_ranking_loss(rates, counts, counts, 0.5, number),
            F.margin_ranking_loss(rates, counts, counts, 0.5, reduction=name),
        )
        pair = plait.stack([rates, counts]), plait.stack([counts, rates])
        same(
            plait.cosine_embedding_loss(*pair, plait.tensor([1, -1]), 0.1, number),
            F.cosine_embedding_loss(*pair, plait.tensor([1, -1]), 0.1, reduction=name),
        )
        same(
            plait.triplet_margin_loss(*pair, 2 * pair[0], 1.0, 2, 1e-6, False, number),
            F.triplet_margin_loss(*pair, 2 * pair[0], reduction=name),
        )
    want = F.kl_div(rates, counts, reduction="none")
    for number, by in enumerate((want, want.mean(), want.sum())):
        same(plait.kl_div(rates, counts, number), by)
    same(plait.kl_div(rates, counts, 2, log_target=True), F.kl_div(rates, counts, reduction="sum", log_target=True))
    with pytest.raises(ValueError, match="reduction must be 0"):
        plait.kl_div(rates, counts, 3)


def test_threshold_writes_to_a_tensor():
    out = plait.empty(4)
    assert plait.threshold(X[0, 0], 2.0, -1.0, out=out) is out and out.tolist() == [-1, -1, 3, 4]
