"""The version, and those of libraries that are not used."""

from plait._version import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip"]

debug, cuda, hip, git_version = False, None, None, None
