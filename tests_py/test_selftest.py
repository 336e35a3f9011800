"""What `python -m plait.selftest` finds and says."""

from __future__ import annotations

import plait
import pytest
from plait import selftest


def test_operations_on_another_cpu_device_agree(tmp_path, capsys) -> None:
    names = ["add", "matmul", "softmax", "sort", "fft_rfft", "linalg_svd"]
    only = [part for name in names for part in ("--only", name)]
    where = tmp_path / "report.txt"
    assert selftest.main(["cpu:1", *only, "--no-speed", "--output", str(where)]) == 0
    text = where.read_text()
    assert "operations on cpu:1\n  6 agree with the CPU, 0 differ, 0 have no kernel there\n" in text
    assert text in capsys.readouterr().out
    assert text.startswith("versions\n")


def test_the_report_names_what_differs_and_what_is_missing(monkeypatch, tmp_path) -> None:
    says = {"add": "float32, result 0: element 1 of [3] is 2, the CPU has 3", "mul": "lacks no kernel"}
    known = dict(selftest.operations())
    monkeypatch.setattr(selftest._core, "bind_SelftestRun", lambda d, i: says.get(known[i], ""))
    where = tmp_path / "report.txt"
    assert selftest.main(["cpu:1", "--no-speed", "--output", str(where)]) == 1
    lines = where.read_text().splitlines()
    assert f"  {len(known) - 2} agree with the CPU, 1 differ, 1 have no kernel there" in lines
    assert "  differs: add: float32, result 0: element 1 of [3] is 2, the CPU has 3" in lines
    assert "  no kernel: mul: no kernel" in lines


def test_a_device_without_values_lacks_operations() -> None:
    found = selftest.run("meta", ["add"])
    assert (found.agree, found.differ, list(found.lacking)) == (0, {}, ["add"])
    assert "on the meta device has no values" in found.lacking["add"]


def test_speeds_are_measured_by_name() -> None:
    rates = selftest.speeds("cpu", 0.01)
    assert next(iter(rates)) == "addition in float32"
    assert all(v.endswith(("GB/s", "TFLOP/s")) for v in rates.values())


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="no operation 'nothing'"):
        selftest.run("cpu", ["nothing"])
    with pytest.raises((RuntimeError, ValueError), match="device: "):
        selftest.run("nowhere:0", ["add"])
    state = plait.get_rng_state()
    selftest.run("cpu:1", ["dropout", "rand"])
    assert plait.equal(plait.get_rng_state(), state)
