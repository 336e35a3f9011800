import gzip
import json

import plait
import pytest
from plait.profiler import ProfilerAction, ProfilerActivity, profile, record_function


def run():
    a = plait.ones(64, 64)
    with record_function("products"):
        for _ in range(3):
            a = plait.matmul(a, a)
    return plait.relu(a)


def test_operations_are_counted():
    with profile(activities=[ProfilerActivity.CPU]) as p:
        run()
    averages = {a.key: a for a in p.key_averages()}
    assert averages["matmul"].count == 3 and averages["relu"].count == 1
    matmul = averages["matmul"]
    assert matmul.device == "cpu:0" and 0 < matmul.shortest <= matmul.cpu_time <= matmul.longest
    assert matmul.total == matmul.cpu_time_total == matmul.self_cpu_time_total and matmul.device_time_total == 0
    assert averages["products"].is_range and averages["products"].count == 1
    assert averages["products"].cpu_time_total > 0 and averages["products"].device_time_total == 0
    assert all(e.shapes is None for e in p.events())


def test_nothing_outside_is_collected():
    run()
    with profile() as p:
        pass
    run()
    assert p.events() == [] and p.key_averages().table() == plait.profiler.EventList().table()


def test_backward_and_shapes():
    w = plait.ones(3, 4).requires_grad_()
    x = plait.ones(2, 3)
    with profile(record_shapes=True) as p:
        plait.relu(plait.matmul(x, w)).backward(plait.ones(2, 4))
    assert ((2, 3), (3, 4)) in [e.shapes for e in p.events() if e.name == "matmul"]
    assert sum(e.name == "matmul" for e in p.events()) == 2
    grouped = [a for a in p.key_averages(group_by_input_shape=True) if a.key == "matmul"]
    assert len(grouped) == 2 and all(a.count == 1 for a in grouped)


def test_table():
    with profile() as p:
        run()
    lines = p.key_averages().table(sort_by="count").splitlines()
    assert lines[0].split() == ["name", "device", "calls", "total", "share", "mean", "min", "max"]
    assert lines[2].startswith("matmul") and lines[2].split()[2] == "3"
    assert len(p.key_averages().table(row_limit=1).splitlines()) == 4
    for order in ("cpu_time_total", "self_cpu_time_total", "cuda_time_total", "time_total"):
        assert "relu" in p.key_averages().table(sort_by=order)
    with pytest.raises(ValueError, match="want one of count"):
        p.key_averages().table(sort_by="beauty")


def test_chrome_trace(tmp_path):
    with profile(record_shapes=True) as p:
        run()
    p.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    matmuls = [e for e in events if e["name"] == "matmul"]
    assert len(matmuls) == 3 and all(e["ph"] == "X" and e["dur"] > 0 for e in matmuls)
    assert matmuls[0]["args"]["Input Dims"] == [[64, 64], [64, 64]]
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named[matmuls[0]["pid"]] == "cpu:0"
    (outer,) = (e for e in events if e["name"] == "products")
    assert named[outer["pid"]] == "host" and outer["ts"] <= matmuls[0]["ts"]


def test_one_at_a_time():
    with profile(), pytest.raises(RuntimeError, match="another profile"), profile():
        pass
    with profile() as p:
        plait.ones(2)
    p.stop()
    assert isinstance(p.events(), list)


def test_an_exception_ends_the_profile():
    with pytest.raises(ZeroDivisionError), profile():
        1 / 0
    seen = []
    with profile(on_trace_ready=seen.append) as p:
        pass
    assert seen == [p]


def test_record_function_decorates():
    @record_function("step")
    def step(x):
        return x + 1

    with profile() as p:
        assert step(1) == 2
    assert [e.name for e in p.events()] == ["step"]
    assert step(1) == 2


def test_schedules_are_cycles():
    of = {"n": ProfilerAction.NONE, "w": ProfilerAction.WARMUP, "r": ProfilerAction.RECORD}
    of["s"] = ProfilerAction.RECORD_AND_SAVE
    for arguments, wanted in (
        ({"wait": 1, "warmup": 1, "active": 2}, "nwrsnwrsnw"),
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 1}, "nwrsnnnnnn"),
        ({"wait": 2, "warmup": 0, "active": 1, "skip_first": 3}, "nnnnnsnnsn"),
        ({"wait": 2, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": 1}, "nwsnnwsnnw"),
    ):
        made = plait.profiler.schedule(**arguments)
        assert [made(i) for i in range(10)] == [of[c] for c in wanted], arguments
    with pytest.raises(ValueError, match="active of at least 1, got wait=0, warmup=0, active=0"):
        plait.profiler.schedule(wait=0, warmup=0, active=0)


def test_steps_are_collected_by_a_schedule(tmp_path):
    seen = []
    write = plait.profiler.tensorboard_trace_handler(tmp_path / "traces", "worker")

    def ready(p):
        write(p)
        seen.append((p.step_num, sorted({e.name for e in p.events() if e.is_range})))

    cycles = plait.profiler.schedule(wait=1, warmup=1, active=2)
    with plait.profiler.profile(schedule=cycles, on_trace_ready=ready) as p:
        for i in range(7):
            with plait.profiler.record_function(f"step {i}"):
                plait.ones(3).add(1)
            p.step()
    assert seen == [(4, ["step 2", "step 3"]), (7, ["step 6"])]
    files = sorted((tmp_path / "traces").iterdir())
    assert len(files) == 2 and all(f.name.startswith("worker.") and f.suffix == ".json" for f in files)
    plait.profiler.tensorboard_trace_handler(tmp_path, use_gzip=True)(p)
    (packed,) = tmp_path.glob("*.json.gz")
    assert json.loads(gzip.decompress(packed.read_bytes()))["traceEvents"]


def test_ranges_under_nvtx_names():
    nvtx = plait.cuda.nvtx
    assert nvtx.range_pop() == -1
    with plait.profiler.profile() as p:
        assert [nvtx.range_push("outer"), nvtx.range_push("inner")] == [0, 1]
        number = nvtx.range_start("overlapping")
        assert [nvtx.range_pop(), nvtx.range_pop()] == [1, 0]
        nvtx.range_end(number)
        nvtx.range_end(number)  # has ended
        nvtx.mark("moment")
        with nvtx.range("step {}", 3):
            plait.ones(2).sum().item()
    names = {e.name for e in p.events() if e.is_range}
    assert names >= {"outer", "inner", "overlapping", "moment", "step 3"}


@pytest.mark.skipif(plait.cuda.is_available(), reason="there is a GPU")
def test_what_only_a_driver_says():
    assert plait.cuda.get_arch_list() == []
    for name in ("mem_get_info", "utilization", "memory_usage"):
        with pytest.raises(plait.DeviceError, match="no GPU"):
            getattr(plait.cuda, name)()


def test_a_profile_can_be_ended_without_it():
    assert not plait.autograd._profiler_enabled()
    p = plait.profiler.profile()
    p.start()
    plait.ones(2).relu()
    assert plait.autograd._profiler_enabled()
    plait.autograd._disable_profiler()
    assert not plait.autograd._profiler_enabled() and any("relu" in e.name for e in p.events())
    plait.autograd._disable_profiler()
    p.stop()
