"""How long ranks wait for others by default."""

from datetime import timedelta

__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]

default_pg_timeout = default_pg_nccl_timeout = timedelta(minutes=30)
