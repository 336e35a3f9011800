"""Writes python/plait/_dispatch/schemas.txt: the arguments of PyTorch's inner functions that Plait computes.

Run it by hand where PyTorch is, with the version that the list is to say, and PYTHONPATH=python.
"""

from __future__ import annotations

from pathlib import Path

import plait
import plait.nn.functional
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
# Inner functions whose names are none of Plait's own.
INNER = [
    "_adaptive_avg_pool2d",
    "_fused_rms_norm",
    "_local_scalar_dense",
    "_log_softmax",
    "_pin_memory",
    "_softmax",
    "_sparse_addmm",
    "_sparse_mm_reduce_impl",
    "_to_copy",
    "_unsafe_view",
    "alias",
    "convolution",
    "lift_fresh",
    "linalg_vector_norm",
    "max_pool2d_with_indices",
    "native_batch_norm",
    "native_dropout",
    "native_group_norm",
    "native_layer_norm",
    "nll_loss_forward",
    "rsub",
    "slice",
    "upsample_bilinear2d",
    "upsample_nearest2d",
]
SPACES = (plait, plait.Tensor, plait.nn.functional)
NOT = ("names", "prng", "generator")


def _row(name: str) -> str | None:
    """Returns a line with the overloads of a function, without those that write to `out`; None if there are none."""
    packet = getattr(torch.ops.aten, name, None)
    if not hasattr(packet, "overloads"):
        return None
    out = []
    for overload in packet.overloads():
        function = getattr(packet, overload)
        schema = str(function._schema)
        if "out" in overload.split("_") or "Dimname" in schema or overload.startswith(NOT) or "Stream" in schema:
            continue
        if any(a.is_out for a in function._schema.arguments):
            continue
        text = schema.removeprefix(f"aten::{name}").replace("SymInt", "int")
        key = f"aten::{name}" + ("" if overload == "default" else f".{overload}")
        if "Tensor" not in text:
            continue
        try:
            composite = torch._C._dispatch_has_kernel_for_dispatch_key(key, "CompositeImplicitAutograd")
        except RuntimeError:
            continue  # of scripts alone
        out.append(("~" if composite else "") + text.removeprefix("." + overload).join([overload, ""]))
    return f"{name} {'; '.join(out)}" if out else None


def main() -> None:
    """Writes the file."""
    names = {n for s in SPACES for n in dir(s) if not n.startswith("__")} | set(INNER)
    rows = [row for n in sorted(names) if (row := _row(n)) is not None]
    path = ROOT / "python/plait/_dispatch/schemas.txt"
    path.write_text("\n".join(rows) + "\n", "utf-8")


if __name__ == "__main__":
    main()
