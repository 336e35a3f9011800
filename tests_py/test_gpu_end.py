"""What ends while a GPU is at work: waits, and processes."""

from __future__ import annotations

import textwrap

from gpus import run


def test_interrupts_during_long_waits() -> None:
    run("""
        import signal
        import threading

        if "llvmpipe" not in plait.cuda.get_device_name():
            sys.exit()  # a GPU has ended before the signal comes
        x = plait.eye(512, device="gpu")
        y = x
        for _ in range(20):
            y = x @ y
        threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
        try:
            y.sum().item()
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the wait was not interrupted")
        assert plait.ones(4, device="gpu").sum().item() == 4, "the device goes on"
    """)


def test_an_interrupted_program_ends_although_much_is_queued() -> None:
    run("""
        import signal
        import threading
        from plait import _core

        if "llvmpipe" not in plait.cuda.get_device_name():
            sys.exit()  # a GPU has done it all
        x = plait.ones(8, device="gpu")
        for _ in range(2000):  # of which many go to the GPU at once
            x = (x + x.sum()) / 9
        x.sum().item()
        x = plait.eye(256, device="gpu")
        threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
        try:
            while True:
                y = x @ x
        except KeyboardInterrupt:
            pass
        assert _core.bind_DevicesLeave() == 1, "the GPU was still at work after ten seconds"
    """)


def test_a_process_ends_while_the_driver_works() -> None:
    # Programs that the driver compiles at this moment, on threads of its own; no cache has them.
    work = textwrap.dedent("""
        x = plait.ones(70, 70, device="gpu:0")
        for f in (plait.sin, plait.erf, plait.lgamma):
            y = f(x @ x)
    """)
    run(work, MESA_SHADER_CACHE_DISABLE="true")
    fork = """
        import os
        child = os.fork()
        if child and os.waitpid(child, 0)[1]:
            sys.exit("the child failed")
    """
    run(work + textwrap.dedent(fork), MESA_SHADER_CACHE_DISABLE="true")


def test_what_a_gpu_is_asked_for_after_the_end_is_an_error() -> None:
    run(
        """
        import atexit, os
        from plait._engine import runtime as _runtime
        atexit.unregister(_runtime._leave_devices)
        x = plait.ones(4, device="gpu:0") + 1
        assert x.sum().item() == 8
        def late():
            try:
                (x + 1).sum().item()
            except plait.DeviceError as error:
                assert "the process ends" in str(error), error
            else:
                os._exit(3)
        atexit.register(late)
        atexit.register(_runtime._leave_devices)
        """
    )
