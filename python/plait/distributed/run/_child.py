"""Becomes the program that its arguments name, which is ended when the process that started it ends.

It is run by its path, so that it does not load the engine.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has ended already
            sys.exit(1)
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"plait.distributed.run: {sys.argv[2]}: {error.strerror}")
