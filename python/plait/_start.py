"""What `import plait` begins with: without it the import would end in a line that says nothing of the cause."""

import importlib.util
import sys

OLDEST = (3, 11)

if sys.version_info < OLDEST:  # pip refuses others, but a path may lead here
    raise ImportError(
        f"plait: want Python {OLDEST[0]}.{OLDEST[1]} or newer, got {sys.version_info[0]}.{sys.version_info[1]}"
    )
if importlib.util.find_spec("plait._core") is None:
    raise ImportError(
        "plait: the compiled module is not in the package's folder; `make extension` builds it, and the wheel has it"
    )
