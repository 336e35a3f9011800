"""`PipelineStage`: a stage of a model, for the schedules of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plait._device import DeviceLike
from plait._tensor import Tensor
from plait.distributed._groups import ProcessGroup, resolve_group
from plait.nn.modules.module import Module, _indent, describe


class PipelineStage:
    """One stage of a model, on the rank that runs it.

    A parameter that stages of several ranks share has a copy on each. The copies start with the values of the first of
    these stages. After a step each copy has the gradient of all uses, so equal optimisers keep the copies equal.
    `Pipe.build_stage` finds shared parameters.

    Args:
        submodule: the stage's part of the model
        stage_index: the index of the stage
        num_stages: the number of stages
        device: the device that the stage runs on; the submodule is moved there
        input_args: example inputs; a schedule compares them with the `output_args` of the stage before on the same rank
        output_args: example outputs
        output_grads: has no effect
        input_grads: has no effect
        group: the ranks of the pipeline; the default group by default
        dw_builder: has no effect: the engine splits backward passes itself
        get_mesh: has no effect
        tied: the parameters that several stages share: by name, the indices of these stages; parameters of the same
            stages must be in the same order on every rank

    Raises:
        ValueError: for an invalid stage index.
        TypeError: if the submodule is not a module, or an index is not an integer.
        AttributeError: for an unknown parameter.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: DeviceLike | None,
        input_args: Any = None,
        output_args: Any = None,
        output_grads: Any = None,
        input_grads: Any = None,
        group: ProcessGroup | None = None,
        dw_builder: Any = None,
        get_mesh: Any = None,
        *,
        tied: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        if not isinstance(submodule, Module):
            raise TypeError(f"PipelineStage: want a module, got {type(submodule).__name__}")
        if not isinstance(stage_index, int) or not isinstance(num_stages, int):
            raise TypeError(f"PipelineStage: want whole numbers of stages, got {stage_index!r} of {num_stages!r}")
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"PipelineStage: stage index {stage_index} is out of range of {num_stages} stages")
        self.submod, self.stage_index, self.num_stages = submodule.to(device), stage_index, num_stages
        self.device, self.group = device, resolve_group(group, "PipelineStage")
        self.input_args, self.output_args = input_args, output_args
        self.tied: list[tuple[Tensor, list[int]]] = []
        for name, stages in (tied or {}).items():
            if stage_index not in stages:
                raise ValueError(f"PipelineStage: {name} is tied between the stages {list(stages)}, not {stage_index}")
            self.tied.append((submodule.get_parameter(name), sorted(stages)))

    @property
    def is_first(self) -> bool:
        """Whether this is the first stage, which gets the batch."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether this is the last stage, whose output is the model's."""
        return self.stage_index == self.num_stages - 1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the submodule."""
        return self.submod(*args, **kwargs)

    def __repr__(self) -> str:
        about = f"stage {self.stage_index} of {self.num_stages}, device={self.device}"
        if self.tied:
            about += ", tied with the stages " + ", ".join(
                map(str, sorted({i for _, users in self.tied for i in users} - {self.stage_index}))
            )
        return describe(type(self).__name__, about, [_indent(f"(submod): {self.submod!r}")])
