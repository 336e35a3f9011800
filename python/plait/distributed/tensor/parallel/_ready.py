"""Plans for models of known shapes: GPT, Llama, BERT, ViT and their relatives."""

from __future__ import annotations

import itertools
import re

from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.tensor._modules import distribute_parameters
from plait.distributed.tensor._placements import Replicate, Shard
from plait.distributed.tensor.parallel._parallelize import matches
from plait.distributed.tensor.parallel._styles import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    linear_dims,
)
from plait.nn import Embedding, Linear, Module, MultiheadAttention, Sequential

# The names, within a block, of the layers that make a block's heads and hidden features, and of those that end there.
_COLUMNS = re.compile(
    r"(^|[.])(q|k|v|qkv|[qkv]_proj|qkv_proj|w[qkv]|wqkv|to_(q|k|v|kv|qkv)|query|key|value|query_key_value|in_proj|c_attn"
    r"|w1|w3|wi|wi_0|wi_1|(gate|up|gate_up)_proj|gate|up|fc1|fc_in|c_fc|linear1|dense_h_to_4h|intermediate[.]dense)$"
)
_ROWS = re.compile(
    r"(^|[.])(o|wo|o_proj|out_proj|out|proj|to_out([.]0)?|c_proj|dense"
    r"|w2|down_proj|down|fc2|fc_out|linear2|dense_4h_to_h|output[.]dense)$"
)
_NUMBER = re.compile(r"(^|(?<=_))\d+$")  # at the end of a part of a name between dots


class _Norm(SequenceParallel):
    """A norm whose input, if it is an ordinary tensor, is the whole sequence."""

    def __init__(self) -> None:
        super().__init__()
        self._takes = Replicate()


class _Heads(ParallelStyle):
    """Divides the features that a `MultiheadAttention` makes of its inputs; its `out_proj` has a style of its own."""

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        whole = [name for name in module._parameters if name in ("bias_k", "bias_v")]
        distribute_parameters(module, device_mesh, lambda name: [Replicate() if name in whole else Shard(0)])
        return module


def ready_plan(model: Module, *, sequence: bool = False, pieces: int = 1) -> dict[str, ParallelStyle]:
    """Returns a plan for `parallelize_module` of a model whose layers have the usual names.

    In each block, which has a number in its name such as "layers.3", it divides the layers that make heads and hidden
    features by columns, and those that return to the model's width by rows: one all-reduce forward and one backward for
    each attention and each feed-forward network. It knows the names of GPT, Llama, BERT, T5 and ViT models and of their
    relatives, `MultiheadAttention`, and pairs of layers in a `Sequential`. The vocabulary is divided if a `Linear` has
    the sizes of an `Embedding`; the scores of such a model are a distributed tensor, divided along the vocabulary.

    The outputs of layers divided by columns are distributed tensors, so attention that names its number of heads works
    as it is: run the model within `implicit_replication`, as `plait.parallelize` does.

    Args:
        model: the model
        sequence: between the layers that are divided, divide the sequence, dimension 1, too: norms and what is added up
            there work on a part of it. A reduce-scatter and an all-gather take the place of each all-reduce
        pieces: the divided layers of blocks work on this many pieces of a batch, so that the exchange of one runs
            beside the product of another: more, smaller collectives

    Raises:
        ValueError: if no layer has a known name.
    """
    whole, part = Replicate(), Shard(1) if sequence else None
    column = ColwiseParallel(use_local_output=False, pieces=pieces)
    row = RowwiseParallel(input_layouts=whole, output_layouts=part, use_local_output=not sequence, pieces=pieces)
    scores, heads, norm = ColwiseParallel(use_local_output=False), _Heads(), _Norm()
    plan: dict[str, ParallelStyle] = {}
    for name, m in model.named_modules():
        parts = name.split(".")
        block = isinstance(m, Sequential | MultiheadAttention)  # may be one itself
        numbered = any(_NUMBER.search(part) for part in (parts if block else parts[:-1]))
        if numbered and linear_dims(m) is not None and name not in plan:
            if _COLUMNS.search(name):
                plan[name] = column
            elif _ROWS.search(name):
                plan[name] = row
        elif numbered and isinstance(m, MultiheadAttention):
            plan[name] = heads
        elif numbered and isinstance(m, Sequential):
            for first, second in _pairs(m):
                plan[f"{name}.{first}"], plan[f"{name}.{second}"] = column, row
        elif sequence and type(m).__name__.endswith(("LayerNorm", "RMSNorm")):
            plan[name] = norm
    if not any(style is column or style is heads for style in plan.values()):
        known = ", ".join(name for name, m in model.named_modules() if linear_dims(m) is not None)
        raise ValueError(
            "ready_plan: no layer has a name that is known to be divided, such as blocks.0.qkv or "
            f"layers.0.self_attn.q_proj; the linear layers are {known or 'none'}. Give a plan"
        )
    for table, head in _vocabulary(model):
        plan[table] = RowwiseParallel(output_layouts=part, use_local_output=not sequence)
        plan[head] = scores
    return _shortened(model, plan)


def _pairs(layers: Sequential) -> list[tuple[str, str]]:
    """Returns the names of two linear layers of which the second undoes what the first does to the width, if so."""
    linear = [(name, m) for name, m in layers._modules.items() if isinstance(m, Linear)]
    return [
        (a, b)
        for (a, first), (b, second) in itertools.pairwise(linear)
        if len(linear) == 2 and first.weight.shape == second.weight.shape[::-1]
    ]


def _vocabulary(model: Module) -> list[tuple[str, str]]:
    """Returns the names of the embedding of a vocabulary and of the layer that scores it, if a model has both."""
    tables = [(n, m) for n, m in model.named_modules() if isinstance(m, Embedding)]
    heads = [(n, m) for n, m in model.named_modules() if isinstance(m, Linear)]
    return [
        (table, head)
        for head, linear in reversed(heads)
        for table, embedding in tables
        if (embedding.num_embeddings, embedding.embedding_dim) == (linear.out_features, linear.in_features)
    ][:1]


def _shortened(model: Module, plan: dict[str, ParallelStyle]) -> dict[str, ParallelStyle]:
    """Returns a plan with * for the numbers of blocks, where all names that it matches have the same style."""
    names = [name for name, _ in model.named_modules()]
    short: dict[str, ParallelStyle] = {}
    for name, style in plan.items():
        parts = name.split(".")
        at = next((i for i, part in enumerate(parts[:-1]) if _NUMBER.search(part)), None)
        if at is not None:
            parts[at] = _NUMBER.sub("*", parts[at])
        pattern = ".".join(parts)
        alike = all(plan.get(n) is style for n in names if matches(n, pattern))
        short[pattern if alike else name] = style
    return short
