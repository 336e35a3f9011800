"""The adaptive softmax: many classes, of which few are frequent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from plait import _ops
from plait._tensor import Tensor
from plait.nn.modules.container import ModuleList, Sequential
from plait.nn.modules.linear import Linear
from plait.nn.modules.module import Module

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

__all__ = ["ASMoutput", "AdaptiveLogSoftmaxWithLoss"]


class ASMoutput(NamedTuple):
    """What `AdaptiveLogSoftmaxWithLoss` returns."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of targets among many classes, in clusters of falling frequency (Grave et al., 2016).

    Args:
        in_features: the size of the input's last dimension
        n_classes: the number of classes
        cutoffs: where clusters begin: the first entry's classes are the head's own
        div_value: how many times smaller the features of each cluster after the first are
        head_bias: whether the head has a bias
        device: of the parameters
        dtype: of the parameters
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        cuts = list(cutoffs)
        if not cuts or cuts != sorted(set(cuts)) or cuts[0] <= 0 or cuts[-1] > n_classes - 1:
            raise ValueError(
                "AdaptiveLogSoftmaxWithLoss: cutoffs must rise strictly, "
                f"between 1 and n_classes - 1 = {n_classes - 1}, got {cuts}"
            )
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*cuts, n_classes]
        self.shortlist_size, self.n_clusters = cuts[0], len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // div_value ** (i + 1))
            classes = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, device=device, dtype=dtype),
                    Linear(hidden, classes, bias=False, device=device, dtype=dtype),
                )
            )

    def reset_parameters(self) -> None:
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> ASMoutput:
        batched = target_.ndim > 0
        if batched and (input_.ndim != 2 or input_.shape[0] != target_.shape[0]):
            raise ValueError(
                "AdaptiveLogSoftmaxWithLoss: want input [N, in_features] and target [N], "
                f"got {list(input_.shape)} and {list(target_.shape)}"
            )
        if not batched and input_.ndim != 1:
            raise ValueError(f"AdaptiveLogSoftmaxWithLoss: want one sample for one target, got {list(input_.shape)}")
        x = input_ if batched else _ops.unsqueeze(input_, 0)
        target = target_ if batched else _ops.unsqueeze(target_, 0)
        if bool(_ops.any(_ops.logical_or(_ops.lt(target, 0), _ops.ge(target, self.n_classes))).item()):
            raise RuntimeError(f"AdaptiveLogSoftmaxWithLoss: targets must lie in 0 to {self.n_classes - 1}")
        head = _ops.log_softmax(self.head(x), 1)
        place = _ops.clamp(target, None, self.shortlist_size - 1)
        output = _ops.squeeze(_ops.gather(head, 1, _ops.unsqueeze(place, 1)), 1)
        for i in range(self.n_clusters):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            rows = _ops.flatten(_ops.nonzero(_ops.logical_and(_ops.ge(target, low), _ops.lt(target, high))))
            if not rows.numel():
                continue
            inside = _ops.log_softmax(self.tail[i](_ops.index_select(x, 0, rows)), 1)
            within = _ops.unsqueeze(_ops.sub(_ops.index_select(target, 0, rows), low), 1)
            cluster = _ops.index_select(_ops.select(head, 1, self.shortlist_size + i), 0, rows)
            total = _ops.add(cluster, _ops.squeeze(_ops.gather(inside, 1, within), 1))
            output = _ops.index_copy(output, 0, rows, total)
        loss = _ops.neg(_ops.mean(output))
        return ASMoutput(output if batched else _ops.squeeze(output, 0), loss)

    def _full(self, x: Tensor, head: Tensor) -> Tensor:
        parts = [_ops.narrow(head, 1, 0, self.shortlist_size)]
        for i, tail in enumerate(self.tail):
            cluster = _ops.narrow(head, 1, self.shortlist_size + i, 1)
            parts.append(_ops.add(_ops.log_softmax(tail(x), 1), cluster))
        return _ops.cat(parts, 1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Returns the log-probabilities of all classes, [N, n_classes]."""
        return self._full(input, _ops.log_softmax(self.head(input), 1))

    def predict(self, input: Tensor) -> Tensor:
        """Returns the most probable class of each sample."""
        return _ops.argmax(self.log_prob(input), 1)
