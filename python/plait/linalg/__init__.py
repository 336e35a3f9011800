"""Linear algebra: norms, decompositions, solutions of equations."""

from typing import Any as _Any

from plait._engine.missing_names import absent as _absent
from plait._errors import LinAlgError as LinAlgError
from plait._functions._checked import overridable as _overridable
from plait._public import publish as _publish
from plait.linalg._decompositions import *
from plait.linalg._norms import *
from plait.linalg._products import *
from plait.linalg._solving import *

_publish(globals())

for _name, _function in list(globals().items()):  # functions are pickled, and shown, as of here
    if getattr(_function, "__module__", "").startswith("plait.linalg."):
        _function.__module__ = __name__
        globals()[_name] = _overridable(_function)


def __getattr__(name: str) -> _Any:
    raise _absent("linalg", "plait.linalg", name)
