"""Losses of distributed scores, of which ranks may have some classes: equal to one device."""

import plait
import pytest
from plait import nn
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, strict
from plait.distributed.tensor.parallel import loss_parallel
from plait.nn import functional as F
from ranks import close
from ranks import on_one_device as on_ranks


def test_vocabulary_parallel_loss():
    plait.manual_seed(2)
    scores, targets = plait.randn(5, 7).double(), plait.tensor([0, 6, 3, -100, 2])
    scores.requires_grad = True
    want = F.cross_entropy(scores, targets, label_smoothing=0.1)
    want.backward()

    def fn(rank):
        mesh = init_device_mesh("cpu", (3,))
        mine = distribute_tensor(scores.detach(), mesh, [Shard(1)])
        mine.requires_grad = True
        with strict():
            loss = F.cross_entropy(mine, distribute_tensor(targets, mesh), label_smoothing=0.1)
            loss.backward()
        assert loss.full_tensor().item() == pytest.approx(want.item(), rel=1e-12)
        assert mine.grad.placements == (Shard(1),)
        close(mine.grad.full_tensor(), scores.grad)

    on_ranks(3, fn)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_parallel(reduction, weighted):
    """Targets and weights may be ordinary tensors, and losses are whole on every rank."""
    plait.manual_seed(2)
    scores, targets = plait.randn(5, 13).double(), plait.tensor([0, 6, 3, -100, 2])
    scores.requires_grad = True
    weight = plait.rand(13).double() if weighted else None
    losses = {
        "cross entropy": lambda x: F.cross_entropy(x, targets, weight, reduction=reduction, label_smoothing=0.1),
        "likelihood": lambda x: F.nll_loss(F.log_softmax(x, 1), targets, weight, reduction=reduction),
        "module": lambda x: nn.CrossEntropyLoss(weight, reduction=reduction)(x, targets),
    }
    want = {}
    for name, loss in losses.items():
        scores.grad = None
        y = loss(scores)
        y.sum().backward()
        want[name] = y.detach(), scores.grad

    def fn(rank):
        mesh = init_device_mesh("cpu", (3,))
        for name, loss in losses.items():
            mine = distribute_tensor(scores.detach(), mesh, [Shard(1)])
            mine.requires_grad = True
            with strict(), loss_parallel():
                y = loss(mine)
                y.sum().backward()
            assert y.placements == (Replicate(),)
            close(y.to_local().detach(), want[name][0])
            assert mine.grad.placements == (Shard(1),)
            close(mine.grad.full_tensor(), want[name][1])

    on_ranks(3, fn)


def test_loss_parallel_on_a_mesh_of_two_dimensions():
    plait.manual_seed(2)
    scores, targets = plait.randn(4, 7).double(), plait.tensor([0, 6, 3, 2])
    scores.requires_grad = True
    want = F.cross_entropy(scores, targets)
    want.backward()

    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        mine = distribute_tensor(scores.detach(), mesh, [Shard(0), Shard(1)])
        mine.requires_grad = True
        with loss_parallel():
            loss = F.cross_entropy(mine, distribute_tensor(targets, mesh, [Shard(0), Replicate()]))
            assert loss.item() == pytest.approx(want.item(), rel=1e-12)
            each = F.cross_entropy(mine, distribute_tensor(targets, mesh, [Shard(0), Replicate()]), reduction="none")
            assert each.placements == (Shard(0), Replicate())
            with pytest.raises(ValueError, match="an ordinary target beside scores placed"):
                F.cross_entropy(mine, targets)
        loss.backward()
        close(mine.grad.full_tensor(), scores.grad)

    on_ranks(4, fn)


def test_loss_parallel_refuses_whole_scores():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        targets = plait.tensor([0, 1])
        with loss_parallel():
            for placement in (Replicate(), Shard(0), Partial()):
                scores = distribute_tensor(plait.ones(2, 4), mesh, [placement])
                with pytest.raises(ValueError, match="divides along dimension 1, the classes, got placements"):
                    F.cross_entropy(scores, targets)
            assert F.cross_entropy(plait.zeros(2, 4), targets).item() == pytest.approx(1.3862943611)  # log 4
        with pytest.raises(TypeError, match="input 1 is an ordinary tensor"):
            F.cross_entropy(distribute_tensor(plait.ones(2, 4), mesh, [Shard(1)]), targets)

    on_ranks(2, fn)


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()], ids=str)
def test_weights_of_classes_get_no_gradient(placement):
    plait.manual_seed(0)
    scores, targets, weights = plait.randn(6, 4), plait.tensor([0, 1, 2, 3, 1, 0]), plait.rand(4)

    def gradients(place):
        x, w = (place(v, p).requires_grad_() for v, p in ((scores, placement), (weights, Replicate())))
        return plait.autograd.grad(F.cross_entropy(x, place(targets, Replicate()), weight=w), [x, w], allow_unused=True)

    def run(rank):
        mesh = init_device_mesh("cpu", (2,))
        x, w = gradients(lambda v, p: distribute_tensor(v, mesh, [p]))
        return x.full_tensor(), w

    want, none = gradients(lambda v, p: v.clone())
    assert none is None
    for got, w in on_ranks(2, run):
        assert w is None
        assert plait.allclose(got, want, atol=1e-6)


@pytest.mark.parametrize(
    ("targets", "options", "error"),
    [
        (plait.tensor([1, 2]), {}, RuntimeError),
        (plait.tensor([1, 2, 3]).int(), {}, RuntimeError),
        (plait.ones(7), {}, RuntimeError),
        (plait.ones(3, 7).double(), {}, RuntimeError),
        (plait.tensor([1, 2, 3]), {"label_smoothing": 2.0}, RuntimeError),
        (plait.tensor([1, 2, 3]), {"reduction": "most"}, ValueError),
        (plait.tensor([1, 2, 3]), {"weight": plait.ones(7).long()}, RuntimeError),
    ],
)
def test_losses_of_divided_classes_are_checked_as_those_of_one_device(targets, options, error):
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        place = {k: distribute_tensor(v, mesh) if isinstance(v, plait.Tensor) else v for k, v in options.items()}
        scores = distribute_tensor(plait.ones(3, 7), mesh, [Shard(1)])
        with pytest.raises(error):
            F.cross_entropy(scores, distribute_tensor(targets, mesh), **place)

    with pytest.raises(error):
        F.cross_entropy(plait.ones(3, 7), targets, **options)
    on_ranks(2, fn)
