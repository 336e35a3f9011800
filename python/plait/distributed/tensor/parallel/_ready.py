"""Plans for models of known shapes: GPT, Llama, BERT, ViT and their relatives."""

from __future__ import annotations

import re

from plait.distributed.tensor._placements import Replicate, Shard
from plait.distributed.tensor.parallel._styles import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
)
from plait.nn import Embedding, LayerNorm, Linear, Module, RMSNorm

# The names, within a block, of the layers that make a block's heads and hidden features, and of those that end there.
_COLUMNS = re.compile(
    r"(^|[.])(q|k|v|qkv|[qkv]_proj|qkv_proj|w[qkv]|wqkv|to_(q|k|v|kv|qkv)|query|key|value|query_key_value|in_proj|c_attn"
    r"|w1|w3|(gate|up|gate_up)_proj|gate|up|fc1|fc_in|c_fc|linear1|dense_h_to_4h|intermediate[.]dense)$"
)
_ROWS = re.compile(
    r"(^|[.])(o|wo|[o]_proj|out_proj|out|proj|to_out([.]0)?|c_proj|dense"
    r"|w2|down_proj|down|fc2|fc_out|linear2|dense_4h_to_h|output[.]dense)$"
)
_NORMS = LayerNorm, RMSNorm


class _Norm(SequenceParallel):
    """A norm whose input, if it is an ordinary tensor, is the whole sequence."""

    def __init__(self) -> None:
        super().__init__()
        self._takes = Replicate()


def ready_plan(model: Module, *, sequence: bool = False) -> dict[str, ParallelStyle]:
    """Returns a plan for `parallelize_module` of a model whose layers have the usual names.

    In each block, which has a number in its name such as "layers.3", it divides the layers that make heads and hidden
    features by columns, and those that return to the model's width by rows: one all-reduce forward and one backward for
    each attention and each feed-forward network. It knows the names of GPT, Llama, BERT and ViT models and of their
    relatives. The vocabulary is divided if a `Linear` behind the blocks has the sizes of an `Embedding`; the scores of
    such a model are a distributed tensor, divided along the vocabulary.

    The outputs of layers divided by columns are distributed tensors, so attention that names its number of heads works
    as it is: run the model within `implicit_replication`, as `plait.parallelize` does.

    Args:
        model: the model
        sequence: between the layers that are divided, divide the sequence, dimension 1, too: norms and what is added up
            there work on a part of it. A reduce-scatter and an all-gather take the place of each all-reduce

    Raises:
        ValueError: if no layer has a known name.
    """
    columns: list[str] = []
    rows: list[str] = []
    norms: list[str] = []
    for name, m in model.named_modules():
        numbered = any(part.isdecimal() for part in name.split("."))
        if numbered and isinstance(m, Linear):
            if _COLUMNS.search(name):
                columns.append(name)
            elif _ROWS.search(name):
                rows.append(name)
        elif isinstance(m, _NORMS):
            norms.append(name)
    if not columns:
        known = ", ".join(name for name, m in model.named_modules() if isinstance(m, Linear))
        raise ValueError(
            "ready_plan: no layer has a name that is known to be divided, such as blocks.0.qkv or "
            f"layers.0.self_attn.q_proj; the linear layers are {known or 'none'}. Give a plan"
        )
    whole, part = Replicate(), Shard(1) if sequence else None
    column = ColwiseParallel(use_local_output=False)
    row = RowwiseParallel(input_layouts=whole, output_layouts=part, use_local_output=not sequence)
    plan: dict[str, ParallelStyle] = {}
    table, head = _vocabulary(model)
    if table is not None and head is not None:
        plan[table] = RowwiseParallel(output_layouts=part, use_local_output=not sequence)
        plan[head] = column
    plan.update(dict.fromkeys(columns, column))
    plan.update(dict.fromkeys(rows, row))
    if sequence:
        plan.update(dict.fromkeys(norms, _Norm()))
    return _shortened(model, plan)


def _vocabulary(model: Module) -> tuple[str | None, str | None]:
    """Returns the names of the embedding of a vocabulary and of the layer that scores it, if a model has both."""
    tables = [(n, m) for n, m in model.named_modules() if isinstance(m, Embedding)]
    heads = [(n, m) for n, m in model.named_modules() if isinstance(m, Linear)]
    for head, linear in reversed(heads):
        for table, embedding in tables:
            if (embedding.num_embeddings, embedding.embedding_dim) == (linear.out_features, linear.in_features):
                return table, head
    return None, None


def _shortened(model: Module, plan: dict[str, ParallelStyle]) -> dict[str, ParallelStyle]:
    """Returns a plan with * for the numbers of blocks, where all names that it matches have the same style."""
    names = {name for name, _ in model.named_modules()}
    short: dict[str, ParallelStyle] = {}
    for name, style in plan.items():
        parts = name.split(".")
        at = next((i for i, part in enumerate(parts) if part.isdecimal()), None)
        alike = [] if at is None else [n for n in names if _alike(n.split("."), parts, at)]
        if at is not None and all(plan.get(n) is style for n in alike):
            parts[at] = "*"
        short[".".join(parts)] = style
    return short


def _alike(name: list[str], other: list[str], at: int) -> bool:
    return len(name) == len(other) and name[:at] == other[:at] and name[at + 1 :] == other[at + 1 :]
