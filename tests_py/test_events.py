"""Events of any device."""

import plait
import pytest


def test_events_of_the_cpu():
    begin, end = (plait.Event("cpu", enable_timing=True) for _ in range(2))
    assert begin.query() and isinstance(begin, plait.Event) and begin.device == plait.device("cpu")
    begin.record()
    x = plait.ones(64, 64)
    x = x @ x
    end.record()
    end.synchronize()
    end.wait()
    assert end.query() and begin.elapsed_time(end) >= 0
    with pytest.raises(RuntimeError, match="enable_timing=True, and recorded"):
        begin.elapsed_time(plait.Event("cpu"))


def test_events_of_gpus_are_events():
    assert issubclass(plait.cuda.Event, plait.Event) and plait.cuda.Event(enable_timing=True).query()
    assert plait.Event().device.type == ("cuda" if plait.cuda.is_available() else "cpu")
