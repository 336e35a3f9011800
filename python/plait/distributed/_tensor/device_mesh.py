"""Meshes of ranks, where older scripts import them from."""

from plait.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
