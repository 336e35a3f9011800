"""Plans: which modules are divided how."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import zip_longest

from plait._errors import DistributedError
from plait.distributed._objects import exchange
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.tensor._dtensor import mesh_or_world
from plait.distributed.tensor.parallel._styles import ParallelStyle, described
from plait.nn import Module, Parameter


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Divides a module among the ranks of a mesh, in place, and returns it. Every rank calls it with the same plan.

    A parameter that the module has in several places stays one parameter, which lies as the first style says.

    Args:
        module: the module
        device_mesh: a mesh of one dimension; None means all ranks in a row
        parallelize_plan: a style for the module itself, or styles by the names of submodules, in which * and ? stand
            for parts of one name between dots
        src_data_rank: 0: the first rank's parameters are divided

    Raises:
        ValueError: if the mesh has more dimensions, or a name of the plan is no module's.
        TypeError: if the plan has something else than styles.
        plait.DistributedError: on every rank, if the ranks' plans differ, or the tensors of the submodules they name.
    """
    mesh = mesh_or_world(device_mesh)
    if mesh.ndim != 1:
        raise ValueError(f"parallelize_module: want a mesh of one dimension, such as mesh['tp'], got {mesh}")
    if src_data_rank != 0:
        raise NotImplementedError(f"parallelize_module: want src_data_rank 0, got {src_data_rank}")
    styles = parallelize_plan or {}
    for style in styles.values() if isinstance(styles, dict) else (styles,):
        if not isinstance(style, ParallelStyle):
            raise TypeError(
                f"parallelize_module: want a style, or styles by the names of submodules, got {style!r:.60} "
                f"of {type(style).__name__}"
            )
    _compare(mesh, described(styles), _tensors(module, styles))
    shared = _shared_parameters(module)
    if isinstance(styles, ParallelStyle):
        divided = styles._apply(module, mesh)
        _share_again(shared)
        return divided
    for pattern, style in styles.items():
        named = [m for name, m in module.named_modules() if matches(name, pattern)]
        if not named:
            known = ", ".join(name for name, _ in module.named_modules() if name)
            raise ValueError(
                f"parallelize_module: the plan names {pattern!r}; the module has {known or 'no submodules'}"
            )
        for sub in named:
            style._apply(sub, mesh)
            _share_again(shared)
    return module


def _shared_parameters(module: Module) -> list[tuple[Parameter, list[tuple[Module, str]]]]:
    """Returns the parameters that a module has in several places, with these places."""
    places: dict[Parameter, list[tuple[Module, str]]] = {}
    for sub in module.modules():
        for name, p in sub._parameters.items():
            if p is not None:
                places.setdefault(p, []).append((sub, name))
    return [(p, users) for p, users in places.items() if len(users) > 1]


def _share_again(shared: list[tuple[Parameter, list[tuple[Module, str]]]]) -> None:
    """Puts a distributed parameter that has taken the place of a shared one in all places of that one."""
    for i, (p, users) in enumerate(shared):
        made = next((new for m, name in users if (new := m._parameters[name]) is not None and new is not p), None)
        if made is not None:
            for m, name in users:
                m._parameters[name] = made
            shared[i] = made, users


def _tensors(module: Module, plan: ParallelStyle | dict[str, ParallelStyle]) -> list[str]:
    """Describes the parameters and buffers of the modules that a plan names."""
    lines = {}
    for name, sub in module.named_modules():
        if isinstance(plan, ParallelStyle) or any(matches(name, pattern) for pattern in plan):
            for own, t in (*sub.named_parameters(prefix=name), *sub.named_buffers(prefix=name)):
                lines[own] = f"{own}, {t.dtype} of shape {tuple(t.shape)}"
            lines.setdefault(name, f"{name or 'the module'}, a {type(sub).__name__}")
    return list(lines.values())


def _compare(mesh: DeviceMesh, plan: str, tensors: list[str]) -> None:
    """Raises an error unless all ranks of a mesh of one dimension have the same plan and tensors."""
    group = mesh.get_group(0)
    payload = "\0".join([plan, *tensors]).encode()
    all_plans, all_tensors = [], []
    for other in exchange(group, "parallelize_module", payload):
        first, *rest = other.decode().split("\0")
        all_plans.append(first)
        all_tensors.append(rest)
    for i, rank in enumerate(group._ranks):
        if all_plans[i] != all_plans[0]:
            raise DistributedError(
                f"parallelize_module: the ranks' plans differ: rank {group._ranks[0]} has {all_plans[0]}, rank "
                f"{rank} has {all_plans[i]}; want the same plan on each rank"
            )
        for ours, theirs in zip_longest(all_tensors[0], all_tensors[i], fillvalue="nothing there"):
            if ours != theirs:
                raise DistributedError(
                    f"parallelize_module: the ranks' modules differ: rank {group._ranks[0]} has {ours}, rank {rank} "
                    f"has {theirs}; want the same module on each rank"
                )


def matches(name: str, pattern: str) -> bool:
    """Whether a name is a pattern's, in which * and ? stand for parts of one name between dots."""
    names, patterns = name.split("."), pattern.split(".")
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))
