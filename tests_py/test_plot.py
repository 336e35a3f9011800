"""Drawings: they are XML, their points lie where they should, and what cannot be drawn is said."""

import itertools
import math
import re
import threading
from xml.etree import ElementTree

import plait
import plait.distributed as dist
import pytest
from plait import nn, plot
from plait.distributed.flight_records import FlightRecord
from plait.distributed.pipelining import Schedule, Span
from plait.plot._draw import BACK, COLOURS, Axis, bytes_unit, seconds_unit, thinned
from plait.profiler import Event, profile, record_function

SVG = "{http://www.w3.org/2000/svg}"
NAN, INF = math.nan, math.inf


def parsed(picture):
    """Returns the root of a picture's XML, whose elements lie in the picture."""
    root = ElementTree.fromstring(str(picture))
    assert root.tag == f"{SVG}svg"
    width, height = float(root.get("width")), float(root.get("height"))
    for e in root.iter(f"{SVG}rect"):
        x, y = float(e.get("x", 0)), float(e.get("y", 0))
        assert x >= -0.01 and x + float(e.get("width")) <= width + 0.5, ElementTree.tostring(e)
        assert y >= 0 and y + float(e.get("height")) <= height
    for e in root.iter(f"{SVG}text"):
        assert 0 <= float(e.get("x")) <= width and 0 <= float(e.get("y")) <= height
    return root


def texts(root):
    return [e.text for e in root.iter(f"{SVG}text")]


def lines(root, kind="line"):
    """Returns the corners of each path of a class, in pixels."""
    found = [e.get("d") for e in root.iter(f"{SVG}path") if kind in e.get("class").split()]
    return [[tuple(map(float, p.split())) for p in d[1:].split("L")] for d in found if "h" not in d]


def ticks(root, upright):
    """Returns the pixels of an axis by what its ticks say."""
    anchor, at = ("end", "y") if upright else ("middle", "x")
    shift = 4 if upright else 0
    found = {}
    for e in root.iter(f"{SVG}text"):
        if e.get("text-anchor") == anchor and re.fullmatch(r"-?[\d.,]+(e[-+]\d+)?", e.text):
            found[float(e.text.replace(",", ""))] = float(e.get(at)) - shift
    return found


def place(marks, value):
    """Returns the pixel of a value, by the pixels of two ticks."""
    (a, x), (b, y) = sorted(marks.items())[:: len(marks) - 1]
    return x + (value - a) / (b - a) * (y - x)


def test_points_lie_where_the_axes_say():
    values = [4.0, 1.0, 2.5, 0.25, 3.0]
    root = parsed(plot.losses(values, title="A run", y="loss (nats)"))
    (line,) = lines(root)
    across, up = ticks(root, False), ticks(root, True)
    for i, (x, y) in enumerate(line):
        assert x == pytest.approx(place(across, i), abs=0.2)
        assert y == pytest.approx(place(up, values[i]), abs=0.2)
    assert {"A run", "step", "loss (nats)"} <= {*texts(root)}


def test_steps_of_pairs():
    root = parsed(plot.losses({"a": [(100, 1), (200, 3)], "b": [(150, 2.0), (400, 1.0)]}))
    across = ticks(root, False)
    ends = [[x for x, _ in line] for line in lines(root)]
    assert ends == [[pytest.approx(place(across, v), abs=0.2) for v in steps] for steps in ([100, 200], [150, 400])]
    assert {"a", "b"} <= {*texts(root)}
    kinds = [e.get("class") for e in root.iter(f"{SVG}path") if "dash0" in e.get("class")]
    assert len({re.search(r"k\d", k)[0] for k in kinds}) == 2


def test_logarithmic_scale():
    values = [100.0, 1.0, 0.0, -3.0, 0.01]
    root = parsed(plot.losses(values, log=True))
    up = {math.log10(v): y for v, y in ticks(root, True).items()}
    first, last = lines(root)[0], root.find(f"{SVG}circle")
    assert [y for _, y in first] == [pytest.approx(place(up, v), abs=0.2) for v in (2, 0)]
    assert float(last.get("cy")) == pytest.approx(place(up, -2), abs=0.2)
    assert any(t.startswith("2 of 5 values are not above 0") and t.endswith("the first at step 2") for t in texts(root))


def test_values_that_are_not_finite_are_gaps():
    root = parsed(plot.losses({"run <1> & \x00": [1, 2, NAN, 3, INF, 4, 5, -INF]}))
    assert [len(line) for line in lines(root)] == [2, 2]
    assert len(root.findall(f"{SVG}circle")) == 1
    assert "run <1> & \ufffd: 3 of 8 values are NaN or infinite, the first at step 2" in texts(root)
    marks = [e.get("d") for e in root.iter(f"{SVG}path") if "gap" in e.get("class")]
    across = ticks(root, False)
    assert [int(x) for x in re.findall(r"M(\d+)", marks[0])] == [int(place(across, i)) for i in (2, 4, 7)]
    root = parsed(plot.losses([NAN, INF]))
    assert {"no values that can be drawn", "2 of 2 values are NaN or infinite, the first at step 0"} <= {*texts(root)}


@pytest.mark.parametrize("values", [[], {}, {"a": []}])
def test_no_losses(values):
    root = parsed(plot.losses(values))
    assert "no values" in texts(root) and not lines(root)


@pytest.mark.parametrize("value", [0, 2.5, -1e300, 5e-324, 1.7e308])
def test_one_point_and_equal_points(value):
    root = parsed(plot.losses([value]))
    assert len(root.findall(f"{SVG}circle")) == 1
    ((a, b),) = lines(parsed(plot.losses([value, value])))
    assert a[1] == b[1]


@pytest.mark.parametrize("values", [[-1.7e308, 1.7e308], [1e9, 1e9 + 1e-6], [1, 1 + 2**-52], [1e-320, 2e-320]])
@pytest.mark.parametrize("log", [False, True])
def test_extreme_ranges(values, log):
    parsed(plot.losses(values, log=log))


@pytest.mark.parametrize("of", [plait.tensor, lambda v: v, lambda v: [plait.tensor(x) for x in v], iter])
def test_kinds_of_numbers(of):
    values = [1.0, 0.5, 2.0]
    assert str(plot.losses(of(values))) == str(plot.losses(values))


def test_a_million_values_keep_their_peaks():
    values = [math.sin(i / 5000) for i in range(1_000_000)]
    values[123_456], values[654_321], values[-1] = 9.0, -7.0, 3.0
    values[500_000] = NAN
    picture = plot.losses(values)
    root = parsed(picture)
    corners = [p for line in lines(root) for p in line]
    assert len(str(picture)) < 100_000 and len(corners) <= 4 * 900
    across, up = ticks(root, False), ticks(root, True)
    for i in (0, 123_456, 654_321, 999_999):
        where = place(across, i), place(up, values[i])
        assert any(math.dist(p, where) < 0.3 for p in corners), i
    assert "1 of 1000000 values is NaN or infinite, at step 500000" in texts(root)


def test_thinning_keeps_gaps_and_the_ends_of_columns():
    none = [(float(i), None) for i in range(5)]
    assert thinned(none, lambda x: x) == []
    assert thinned([(float(i), 1.0) for i in range(5)], lambda x: x) == [[0, 1, 2, 3, 4]]
    points = [(i / 10, None if 40 <= i < 60 else float(i % 7)) for i in range(100)]
    before, after = thinned(points, lambda x: x)
    assert before[0] == 0 and before[-1] == 39 and after[0] == 60 and after[-1] == 99
    for column in range(10):
        if column not in (4, 5):
            found = [points[i][1] for piece in (before, after) for i in piece if i // 10 == column]
            every = [v for i, (_, v) in enumerate(points) if i // 10 == column]
            assert {min(every), max(every)} <= {*found} and len(found) <= 4


def test_smoothing():
    values = [1.0, 5.0, 2.0]
    root = parsed(plot.losses(values, smooth=0.5))
    raw, smooth = lines(root)
    up = ticks(root, True)
    means, total, weight = [], 0.0, 0.0
    for v in values:
        total, weight = total / 2 + v / 2, weight / 2 + 0.5
        means.append(total / weight)
    assert means == [1.0, pytest.approx(11 / 3), pytest.approx(19 / 7)]
    assert [y for _, y in raw] == [pytest.approx(place(up, v), abs=0.2) for v in values]
    assert [y for _, y in smooth] == [pytest.approx(place(up, v), abs=0.2) for v in means]
    assert "smoothed by 0.5; the values themselves are faint" in texts(root)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: plot.losses("abc"), TypeError, "want a row of numbers, or {name: numbers}, got str"),
        (lambda: plot.losses(3.0), TypeError, "want a row of numbers, or {name: numbers}, got float"),
        (
            lambda: plot.losses({"a": ["x"]}),
            TypeError,
            "want numbers of 'a', or pairs of step and number, got 'x' at 0",
        ),
        (lambda: plot.losses([1j]), TypeError, "got 1j at 0"),
        (lambda: plot.losses([10**400]), TypeError, "want numbers"),
        (lambda: plot.losses(plait.ones(2, 2)), ValueError, r"want a row of numbers, got the shape \[2, 2\]"),
        (lambda: plot.losses([(1, 2), (0, 3)]), ValueError, "want steps in their order, got 0 after 1"),
        (lambda: plot.losses([(NAN, 2)]), ValueError, "want finite steps, got nan at 0"),
        (lambda: plot.losses([1], smooth=1.0), ValueError, "want smooth from 0 to below 1, got 1.0"),
        (lambda: plot.losses([1], width=10), ValueError, "losses: want a width from 160 to 20000 pixels, got 10"),
        (lambda: plot.losses([1], height=2.5), TypeError, "losses: want height in whole pixels, got 2.5"),
        (plot.timeline, ValueError, "want at least one profile, schedule, timeline or flight record"),
        (lambda: plot.timeline(3), TypeError, "a Timeline or its spans, or a flight record, got int"),
        (lambda: plot.timeline([1]), TypeError, "got list"),
        (lambda: plot.timeline(Schedule("1f1b", 1, 1), unit="ms"), ValueError, 'want unit "s" or "", got \'ms\''),
        (lambda: plot.timeline(Schedule("1f1b", 1, 1), [Event("a", "cpu:0", 0, 0, 0.0, 1.0)]), ValueError, "one unit"),
        (lambda: plot.memory(3), TypeError, "want a MemoryLog or a list of what memory_stats returned, got int"),
        (lambda: plot.memory(plait.memory_stats()), TypeError, "want a list of what memory_stats returned, got one"),
        (lambda: plot.memory([{"current": 1}]), TypeError, "in each sample, got {'current': 1} at 0"),
        (lambda: plot.MemoryLog(every=0), ValueError, "want every above 0 seconds, or None, got 0"),
        (lambda: plot.communication(3), TypeError, "want the record of flight_recorder, or a dict of bytes by name"),
        (lambda: plot.communication({"a": 1.5}), TypeError, "want a whole number of bytes for 'a', got 1.5"),
        (lambda: plot.communication({}, by="size"), ValueError, "one of operation, rank, time, got 'size'"),
        (lambda: plot.communication({"a": 1}, by="rank"), ValueError, "a dict of bytes has no rank"),
    ],
)
def test_wrong_arguments(call, error, says):
    with pytest.raises(error, match=says):
        call()


def pieces(root):
    """Returns the lanes' pieces: what their tooltips say, and their first and last pixels."""
    found = {}
    for g in root.iter(f"{SVG}g"):
        rect = g.find(f"{SVG}rect")
        x = float(rect.get("x"))
        found[g.find(f"{SVG}title").text] = (x, x + float(rect.get("width")), float(rect.get("y")))
    return found


def test_timeline_of_a_schedule():
    schedule = Schedule("zb-h1", devices=2, micro_batches=3)
    simulated = schedule.simulate()
    root = parsed(plot.timeline(schedule, title="Two devices"))
    across, found = ticks(root, False), pieces(root)
    assert len(found) == len(simulated.spans)
    kinds = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
    rows = {}
    for s in simulated.spans:
        name = f"{s.stage}{s.kind}{s.micro}: {kinds[s.kind]} of micro-batch {s.micro} in stage {s.stage}"
        left, right, y = found[f"{name}, {s.start:.4g} to {s.end:.4g}"]
        assert left == pytest.approx(place(across, s.start), abs=0.2)
        assert right == pytest.approx(place(across, s.end), abs=0.2)
        assert rows.setdefault(s.device, y) == y
    assert rows[0] < rows[1]
    assert {"device 0", "device 1", "time", "Two devices", "forward", "input gradient"} <= {*texts(root)}
    assert str(simulated.plot()) == str(plot.timeline(simulated)) == simulated._repr_svg_()
    two = parsed(plot.timeline({"one": schedule, "other": simulated.spans}))
    assert {"one", "other"} <= {*texts(two)}


def test_times_in_seconds():
    spans = [Span(0, "F", 0, 0, 0.0, 0.02), Span(1, "B", 1, 0, 0.02, 0.05)]
    root = parsed(plot.timeline(spans, unit="s"))
    across = ticks(root, False)
    assert "time (ms)" in texts(root) and max(across) == 50
    assert pieces(root)["1B0: backward of micro-batch 0 in stage 1, 20 to 50 ms"][0] == pytest.approx(
        across[20], abs=0.2
    )
    assert [seconds_unit(t)[1] for t in (3, 0.5, 1e-6)] == ["s", "ms", "µs"]


def test_timeline_of_a_profile():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    x = plait.ones(2, 8)
    with profile(record_shapes=True) as p, record_function("all of it"), record_function("inside & <all>"):
        model(x).sum().backward()
    root = parsed(plot.timeline(p))
    found = pieces(root)
    assert sum(name.startswith(("all of it", "inside & <all>")) for name in found) == 2
    outer, inner = (next(v for k, v in found.items() if k.startswith(n)) for n in ("all of it", "inside"))
    assert outer[2] < inner[2] and outer[0] <= inner[0] and inner[1] <= outer[1] + 0.01
    assert any(re.match(r"linear of .*\[2, 8\].*, [\d.]+ to [\d.]+ (µs|ms|s)$", name) for name in found)
    assert {"host", "cpu:0", "all of it"} <= {*texts(root)}
    assert str(plot.timeline(p.events())) == str(plot.timeline(p))
    with profile() as p:
        pass
    assert "nothing was collected" in texts(parsed(plot.timeline(p)))


def test_lanes_of_ranks_and_streams():
    where = [("gpu:0", 0, 0), ("gpu:0", 1, 0), ("gpu:1", 0, 1)]
    events = [Event("copy", d, s, r, 10.0 * i, 10.0) for i, (d, s, r) in enumerate(where)]
    root = parsed(plot.timeline(events))
    names = ["rank 0, gpu:0, stream 0", "rank 0, gpu:0, stream 1", "rank 1, gpu:1"]
    assert [t for t in texts(root) if t in names] == names


def test_many_pieces_are_drawn_together():
    events = [Event(f"op{i % 20}", "cpu:0", 0, 0, i * 1.0, 0.5 + (i == 7) * 0.5) for i in range(50_000)]
    picture = plot.timeline(events)
    root = parsed(picture)
    assert len(str(picture)) < 2_500_000
    assert "14 others" in texts(root)
    said = re.search(r"(\d+) pieces narrower than half a pixel are drawn together", str(picture))
    counts = [int(m[1]) for name in pieces(root) if (m := re.match(r"(\d+) pieces, first op\d+, at", name))]
    assert int(said[1]) <= 50_000 and int(said[1]) >= sum(counts) > 0


def record(size=4):
    """Returns the flight record of two ranks."""
    kept = []

    def rank(number):
        dist.init_process_group()
        for _ in range(3):
            dist.all_reduce(plait.ones(size))
        dist.broadcast(plait.ones(2 * size), 0)
        dist.barrier()
        if number == 0:
            kept.append(dist.flight_recorder())

    dist.spawn(rank, nprocs=2)
    return kept[0]


def test_timeline_and_bytes_of_a_flight_record():
    taken = record()
    assert isinstance(taken, FlightRecord)
    found = taken.to_dict()
    root = parsed(plot.timeline(taken))
    names = pieces(root)
    for o in found["operations"]:
        assert o["state"] == "done"
        start = f"{o['name']} #{o['seq']} of {o['group']}, {o['bytes']} B, done"
        assert any(n.startswith(f"{start}: waits, ") for n in names) and any(n.startswith(f"{start}, ") for n in names)
    assert {"rank 0", "rank 1", "waits for others", "all_reduce", "broadcast"} <= {*texts(root)}
    sums = {}
    for o in found["operations"]:
        sums[o["name"]] = sums.get(o["name"], 0) + o["bytes"]
    assert sums["all_reduce"] == 2 * 3 * 16 and sums["broadcast"] == 2 * 32
    said = texts(parsed(plot.communication(taken)))
    assert {"96 B in 6 calls", "64 B in 2 calls"} <= {*said}
    assert texts(parsed(plot.communication(taken, by="rank"))).count("80 B") == 2
    root = parsed(plot.communication(taken, by="time"))
    counts = [int(m[1]) for name in pieces(root) if (m := re.fullmatch(r"\w+, (\d+) B", name))]
    assert counts and any(t.startswith("bytes (B) in ") for t in texts(root))


def test_bytes_of_counters():
    root = parsed(plot.communication({"to <device>": 3 << 20, "from": 1 << 20}))
    assert {"3 MiB", "1 MiB", "bytes (MiB)", "to <device>"} <= {*texts(root)}
    across, found = ticks(root, False), pieces(root)
    left, right, _ = found["to <device>: to <device>, 3 MiB"]
    assert left == pytest.approx(across[0], abs=0.2) and right == pytest.approx(place(across, 3), abs=0.2)
    mixed = {"to_device": 7, "to_device.bytes": 2048, "dispatches": 9}
    assert [t for t in texts(parsed(plot.communication(mixed))) if "to_device" in t or "dispatch" in t] == ["to_device"]
    assert "no calls" in texts(parsed(plot.communication({})))
    assert [bytes_unit(n) for n in (0, 1023, 1024, 1 << 30)] == [(1, "B"), (1, "B"), (1024, "KiB"), (1 << 30, "GiB")]


def stats(parameters=0, gradients=0, peak=0):
    """Returns what memory_stats would of such memory."""
    made = {
        f"{when}{name}": 0
        for name in ("", *(k.removeprefix("current") for k in plait.memory_stats() if k.startswith("current.")))
        for when in ("current", "peak")
    }
    made |= {"current": parameters + gradients, "peak": peak, "reserved": peak}
    return made | {"current.parameters": parameters, "current.gradients": gradients}


def test_memory_areas():
    rows = [stats(2 << 20, 0, 2 << 20), stats(2 << 20, 3 << 20, 6 << 20), stats(2 << 20, 1 << 20, 6 << 20)]
    root = parsed(plot.memory(rows))
    across, up = ticks(root, False), ticks(root, True)
    areas = {e.get("class"): e.get("d") for e in root.iter(f"{SVG}path") if e.get("class").startswith("bar")}
    assert len(areas) == 2
    corners = [[tuple(map(float, p.split())) for p in d[1:-1].split("L")] for d in areas.values()]
    for lowest, highest, area in zip(([0, 0, 0], [2, 2, 2]), ([2, 2, 2], [2, 5, 3]), corners, strict=True):
        tops, bottoms = area[: len(area) // 2], area[len(area) // 2 :][::-1]
        assert [y for _, y in tops[::2]] == [pytest.approx(place(up, v), abs=0.2) for v in highest]
        assert [y for _, y in bottoms[::2]] == [pytest.approx(place(up, v), abs=0.2) for v in lowest]
        assert [x for x, _ in tops[::2]] == [pytest.approx(place(across, i), abs=0.2) for i in range(3)]
        assert tops[1] == (tops[2][0], tops[0][1])  # each value holds until the next one
    assert {"peak 6 MiB", "memory (MiB)", "sample", "parameters", "gradients"} <= {*texts(root)}
    assert "activations" not in texts(root)


def test_memory_of_no_sample_of_one_and_of_many():
    assert "no samples" in texts(parsed(plot.memory([])))
    assert len([e for e in parsed(plot.memory([stats(5)])).iter(f"{SVG}path") if e.get("class").startswith("bar")]) == 1
    picture = plot.memory([stats(i % 100, i % 7, 200) for i in range(100_000)])
    parsed(picture)
    assert len(str(picture)) < 350_000
    names = texts(parsed(plot.memory({"rank 0": [stats(5)], "rank 1": []})))
    assert {"rank 0", "rank 1", "no samples"} <= {*names}


def test_memory_log():
    with plot.MemoryLog("cpu:0") as log:
        kept = plait.ones(1000, 1000)
        log.take()
        del kept
    (_, first), (_, middle), (_, last) = log.samples
    assert (
        middle["current"] - first["current"]
        == middle["current.activations"] - first["current.activations"]
        == 4_000_000
    )
    assert last["current"] == first["current"] and len(log) == 3
    root = parsed(plot.memory(log))
    assert any(t.startswith("time (") for t in texts(root)) and any(t.startswith("peak ") for t in texts(root))
    with pytest.raises(ValueError, match="only MemoryLogs or only lists of samples, got both"):
        plot.memory({"a": log, "b": [plait.memory_stats()]})


def test_memory_log_takes_samples_by_itself():
    before = threading.active_count()
    enough = threading.Event()
    with plot.MemoryLog(every=0.001) as log:
        while len(log) < 5:
            enough.wait(0.01)
    count = len(log)
    assert threading.active_count() == before
    times = [at for at, _ in log.samples]
    assert count >= 6 and times == sorted(times) and all(s.keys() == log.samples[0][1].keys() for _, s in log.samples)


def test_the_categories_are_all():
    for name in ("current", "peak"):
        found = {k.partition(".")[2] for k in plait.memory_stats() if k.startswith(f"{name}.")}
        assert found == {*plot._memory.CATEGORIES}


def test_pictures(tmp_path):
    picture = plot.losses([1, 2], title='a "title" & <b>')
    assert picture._repr_svg_() == str(picture) == picture.svg
    picture.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text("utf-8") == str(picture)
    assert parsed(picture).get("aria-label") == 'a "title" & <b>'
    assert re.fullmatch(r"<Picture: \d+ characters of SVG>", repr(picture))
    assert plot.Picture is plait.distributed.pipelining.Picture
    style = parsed(picture).find(f"{SVG}style").text
    assert "prefers-color-scheme: dark" in style
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", style.replace("@media (prefers-color-scheme: dark) {", ""))
    assert rules and all(s.strip().startswith(".plait-plot ") for rule in rules for s in rule.split(","))


def linear(colour):
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def contrast(a, b):
    """Returns the ratio of luminances, as WCAG 2 defines it."""
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(a), linear(b)))
    return (high + 0.05) / (low + 0.05)


# Machado, Oliveira and Fernandes (2009): what linear colours are without cones for red, green or blue.
BLIND = {
    "all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def lab(colour):
    r, g, b = (min(1, max(0, c)) for c in colour)
    xyz = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047, 0.2126 * r + 0.7152 * g + 0.0722 * b, \
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883  # fmt: skip
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("shade", [0, 1])
@pytest.mark.parametrize("eyes", BLIND)
def test_colours_differ_for_all_eyes(shade, eyes):
    seen = {
        c: lab([sum(m * v for m, v in zip(row, linear(c), strict=True)) for row in BLIND[eyes]])
        for c in (p[shade] for p in COLOURS)
    }
    for a, b in itertools.combinations(seen, 2):
        assert math.dist(seen[a], seen[b]) > 18, (a, b)  # a just noticeable difference is 2.3
    assert all(contrast(c, BACK[shade]) >= 3 for c in seen)  # as WCAG 2 asks of graphics


def test_ticks_are_round_and_inside():
    for low, high, log in [(0, 1, False), (-3, 17, False), (1e-6, 2e-6, False), (0.003, 4000, True), (2, 3, True)]:
        axis = Axis(low, high, 0, 100, log)
        found = axis.ticks(6)
        assert 2 <= len(found) <= 12 and len({t for _, t in found}) == len(found)
        for value, text in found:
            assert low - 1e-9 <= value <= high + 1e-9 and float(text.replace(",", "")) == pytest.approx(value, rel=1e-9)
