"""What must not crash or hang: forks, Ctrl-C, full memory, wrong handles. Much of it is in processes of its own."""

import copy
import gc
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
import textwrap
import weakref

import plait
import pytest


def python(code, *args, **env):
    """Runs code in a new process and returns what it printed."""
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **env}, check=False)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_a_forked_child_refuses_every_use_and_ends():
    out = python("""
        import os, plait
        x = plait.ones(3)
        a = x.detach().numpy()
        c = x.__dlpack__()
        pid = os.fork()
        if pid == 0:
            for f in (lambda: plait.ones(2), lambda: x + 1, lambda: x.item(), lambda: x.shape, lambda: x.sum(),
                      lambda: plait.no_grad().__enter__(), lambda: plait.nn.Linear(2, 2), lambda: repr(x)):
                try:
                    f()
                    print("no error")
                except RuntimeError as e:
                    assert "forked" in str(e) and "spawn" in str(e), e
            del x, a, c
            print("child done", flush=True)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
        assert (x + 1).tolist() == [2.0] * 3
        print("parent done")
    """)
    assert "child done" in out and "parent done" in out and "no error" not in out and "ignored" not in out


def test_a_forked_child_ends_in_the_usual_way():
    out = python("""
        import multiprocessing, plait
        x = plait.ones(3)
        def work():
            try:
                x + 1
            except RuntimeError:
                print("refused", flush=True)
        if __name__ == "__main__":
            p = multiprocessing.get_context("fork").Process(target=work)
            p.start(); p.join(60)
            print("exit", p.exitcode)
    """)
    assert "refused" in out and "exit 0" in out and "Traceback" not in out


def _double(t):
    return t + t


def test_spawned_processes_take_and_return_tensors():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        out = pool.apply(_double, (plait.tensor([1.0, 2.0]),))
    assert out.tolist() == [2.0, 4.0]


def test_pickle_and_copy():
    for dtype in (plait.float32, plait.bfloat16, plait.int64, plait.bool):
        t = plait.tensor([[1, 0], [0, 1]], dtype=dtype)
        for made in (pickle.loads(pickle.dumps(t)), copy.copy(t), copy.deepcopy(t)):
            assert made.dtype is dtype and made.tolist() == t.tolist()
    w = plait.ones(2).requires_grad_()
    w.mark = "here"
    made = pickle.loads(pickle.dumps(w))
    assert made.requires_grad and made.is_leaf and made.mark == "here"
    assert copy.deepcopy([w, w])[0].requires_grad
    one, other = copy.deepcopy([w, w])
    assert one is other and one.data_ptr() != w.data_ptr()


def test_deep_copies_share_the_memory_that_their_originals_share():
    x = plait.arange(6.0)
    x.notes, x.grad = [x], plait.ones(6)
    made = copy.deepcopy({"all": x, "part": x[1:], "bits": x.view(plait.int32), "grad": x.grad})
    made["all"][1] = 100.0
    assert made["part"].tolist() == [100, 2, 3, 4, 5] and x.tolist() == [0, 1, 2, 3, 4, 5]
    assert plait.equal(made["bits"].view(plait.float32), made["all"])
    made["grad"][0] = 9.0
    assert made["all"].grad[0] == 9 and x.grad[0] == 1
    assert made["all"].notes[0] is made["all"] and len(x.notes) == 1
    for t in (x.reshape(2, 3).t(), x[::2], plait.ones(1).expand(4), plait.zeros(2, 0), plait.ones(3, device="meta")):
        one = copy.deepcopy(t)
        assert (one.shape, one.stride(), one.is_leaf) == (t.shape, t.stride(), True)
        assert t.is_meta or plait.equal(one, t)
    raw = plait.arange(7).to(plait.uint8)
    words = raw[:4].view(plait.float32)
    for pair in ([raw, words], [words, raw]):
        assert all(plait.equal(a, b) for a, b in zip(copy.deepcopy(pair), pair, strict=True))
    net = plait.nn.Module()
    net.register_buffer("table", plait.zeros(4))
    net.register_buffer("tail", net.table[1:])
    other = copy.deepcopy(net)
    other.table.fill_(3)
    assert other.tail.tolist() == [3, 3, 3] and net.tail.tolist() == [0, 0, 0]


LONG = """
    import os, signal, sys, threading, time
    import plait
    from plait._device import synchronize
    a = plait.ones(1024, 1024)
    def kick():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
    last = a
    def work():
        global last
        for _ in range(400):
            last = plait.matmul(a, a)
    what = sys.argv[1]
    plait.set_num_threads(1)  # long also on a machine of many cores
    try:
        threading.Thread(target=kick).start()
        if what == "queue":
            while True:
                work()
        if what == "backward":
            w = plait.ones(1024, 1024).requires_grad_()
            y = w
            for _ in range(400):
                y = plait.matmul(y, w)
            last = y
            plait.sum(y).backward()
            work()
        work()
        if what == "item":
            plait.sum(last).item()
        if what == "numpy":
            last.detach().numpy()
        if what == "index":
            a[last > 0]
        synchronize()
        print("not interrupted")
    except KeyboardInterrupt:
        # Nothing waited for the end of the work.
        print("interrupted", plait._core.bind_TensorReady(last._h))
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.mark.parametrize("what", ["item", "synchronize", "numpy", "index", "queue", "backward"])
def test_ctrl_c_ends_a_wait(what):
    assert python(LONG, what).split() == ["interrupted", "0"]


def test_a_backward_pass_in_slices_is_right():
    x = plait.ones(2).requires_grad_()
    y = x
    for _ in range(3000):
        y = y + x
    plait.sum(y).backward()
    assert x.grad.tolist() == [3001.0] * 2


def test_out_of_memory_is_an_error_and_the_process_goes_on():
    out = python(
        """
        import plait
        kept = plait.zeros(1 << 20)
        try:
            plait.zeros(1 << 30)
            print("no error")
        except MemoryError as e:
            assert isinstance(e, plait.OutOfMemoryError) and isinstance(e, RuntimeError)
            print(e)
        assert kept.tolist()[:2] == [0.0, 0.0]
        # Memory that is still in use by queued work, or in caches, is found again.
        for _ in range(300):
            kept = plait.matmul(plait.ones(1024, 1024), plait.ones(1024, 1024))
        assert kept[0, 0].item() == 1024.0
        # A cycle keeps a tensor until Python looks for cycles.
        for _ in range(40):
            loop = [plait.ones(1 << 21)]
            loop.append(loop)
        print("went on")
        """,
        PLAIT_CPU_MEMORY="64M",
    )
    assert "went on" in out and "no error" not in out
    for part in ("4294967296 bytes", "cpu:0", "in use", "PLAIT_CPU_MEMORY"):
        assert part in out


def test_out_of_memory_in_place_leaves_the_target():
    # Where operands share memory with the target, an operation in place needs a copy first.
    out = python(
        """
        import plait
        x = plait.ones(1000, 1000)
        i = plait.arange(1000)
        def set_item(t): t[i] = t
        for f in (
            lambda t: t.add_(t.T), lambda t: t[1:].add_(t[:-1]), lambda t: t.addcmul_(t.T, t.T),
            lambda t: t.lerp_(t.T, 0.5), lambda t: t.clamp_(t.T), lambda t: t.pow_(t.T), lambda t: t.div_(t.T),
            lambda t: t.copy_(t.T), lambda t: t.index_add_(0, i, t.T), set_item, lambda t: t.cumsum_(0),
            lambda t: t.addmm_(t, t.T),
        ):
            try:
                f(x)
                print("no error")
            except MemoryError as e:
                print(e)
            assert x.sum().item() == 1e6
        print("went on")
        """,
        PLAIT_CPU_MEMORY="6300000",
    )
    assert "went on" in out and "no error" not in out
    assert "add_: clone: allocate: out of memory: no room for 4000000 bytes on cpu:0" in out


def test_sizes_that_no_memory_has():
    for sizes in ((1 << 62,), (1 << 40, 1 << 40), (1 << 31, 1 << 31, 1 << 31), (-1,)):
        with pytest.raises((ValueError, MemoryError, OverflowError)):
            plait.zeros(*sizes)


def test_faulthandler():
    out = python("""
        import faulthandler, plait, sys
        x = plait.ones(2) + 1
        faulthandler.enable()
        faulthandler.dump_traceback(file=sys.stdout)
        assert (x + x).tolist() == [4.0, 4.0]
        faulthandler.disable()
        assert (x + x).tolist() == [4.0, 4.0]
    """)
    assert "most recent call first" in out


def test_a_crash_shows_where_python_was():
    code = "import plait, ctypes; plait.ones(2)\ndef here(): ctypes.string_at(0)\nhere()"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0 and "in here" in done.stderr


FUZZ = r"""
    import random, re, sys
    from array import array
    from pathlib import Path
    import plait
    from plait import _core

    rng = random.Random(int(sys.argv[2]))
    functions = {}
    for path in sorted(p for p in Path(sys.argv[1]).glob("*.go") if not p.stem.endswith("_test")):
        for name, params in re.findall(r"^func ([A-Z]\w*)\(([^)]*)\)", path.read_text(), re.M):
            kinds = []
            for p in reversed(re.split(r",\s+", params) if params else []):
                kinds.insert(0, p.split()[1] if " " in p else kinds[0])
            functions[name] = kinds
    # Those that take memory of the caller by address, or change limits that other calls need.
    kept = "TensorWrap TensorFromMemory FileParse FileSave CpuSetMemoryLimit ThreadsSet ModeSet"
    for name in kept.split():
        assert functions.pop(name, None) is not None, name
    x = plait.ones(2, 3)
    released = plait.ones(2)
    gone = released._h
    del released
    generator = _core.bind_GeneratorNew(1)
    keep = []

    def handle():
        few = x._h, x._h, gone, generator, 0, -1, -2, -3, 1, 7, (1 << 63) - 1, -(1 << 63)
        return rng.choice((*few, rng.getrandbits(31), rng.getrandbits(62), -rng.getrandbits(62)))

    def buffer(kind):
        if kind == "d":
            b = array("d", [rng.uniform(-2, 2) for _ in range(4096)])
        else:
            b = array("q", [handle() if kind == "h" else rng.randint(-2, 3) for _ in range(4096)])
        keep.append(b)
        del keep[:-20]
        return b.buffer_info()[0]

    def argument(kind):
        if kind in ("Tensor", "Object"):
            return handle()
        if kind == "Status":
            return -abs(handle() % (1 << 62)) - 1
        if kind in ("Ints", "IntsOut", "BytesOut", "Bytes"):
            return buffer("q")
        if kind in ("Floats", "FloatsOut"):
            return buffer("d")
        if kind in ("Tensors", "TensorsOut"):
            return buffer("h")
        if kind in ("DType", "Device"):
            return rng.choice((0, 6, -1, -5, 3, 99, 255, 256, 1 << 40, -(1 << 40)))
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return rng.choice((0.0, 1.0, -1.5, float("nan"), float("inf"), 1e300))
        if kind == "string":
            return rng.choice(("", "cpu:0", "cpu:-1", "gpu:0", "x", "/nowhere/at/all", "\u00e4"))
        return rng.choice((0, 1, 2, 3, -1, -2, 8))

    for name, kinds in functions.items():
        f = getattr(_core, "bind_" + name)
        print(name, file=sys.stderr, flush=True)
        for _ in range(int(sys.argv[3])):
            args = [argument(kind) for kind in kinds]
            status = f(*args)
            if type(status) is int and -(1 << 60) < status < -1 and name not in ("ModeGet",):
                _core.bind_ErrorRelease(status)
    _core.bind_ProfileStop()
    mode = _core.bind_ModeGet()
    for wrong in (-(1 << 63), -1, 12345 << 8, 1 << 32, 99 << 32):
        assert _core.bind_ModeSet(wrong) < 0, wrong
    assert _core.bind_ModeGet() == mode
    print("survived", len(functions))
"""


def test_ctrl_c_is_never_lost_in_the_end_of_a_tensor():
    # Many interruptions, each at another moment of a loop that makes tensors and generators and drops them again.
    out = python("""
        import signal, plait
        def interrupt(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        w, caught = plait.ones(2).requires_grad_(), 0
        for i in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + 1e-6 * i)
                for _ in range(1_000_000):
                    w + 1.0
                    plait.Generator()
                print("one is lost")
            except KeyboardInterrupt:
                caught += 1
        print("caught", caught)
    """)
    assert out.split() == ["caught", "400"]  # Python would say so if it had ignored one


def test_wrong_handles_and_numbers_are_errors():
    source = pathlib.Path(__file__).parent.parent / "capi" / "bind"
    out = python(FUZZ, str(source), "1", "12", PLAIT_CPU_MEMORY="256M")
    assert "survived" in out


def test_owners_give_their_handles_back():
    gc.collect()  # of what other tests have left
    before, objects = plait._core.bind_TensorCount(), plait._core.bind_ObjectCount()

    class Mine(plait.Tensor):
        pass

    t = plait.ones(2).as_subclass(Mine)
    ring = [t, weakref.ref(t)]
    t.ring = ring
    moved = plait.Tensor(2)
    handle = moved._h
    del moved._h
    with pytest.raises(AttributeError):
        _ = moved._h
    kept = plait._core.own(handle)
    assert kept.shape == (2,) and plait._core.bind_TensorCount() == before + 2
    g = plait.Generator()
    assert plait._core.bind_ObjectCount() == objects + 1
    dead = ring[1]
    del t, ring, kept, moved, g
    gc.collect()
    assert dead() is None
    assert (plait._core.bind_TensorCount(), plait._core.bind_ObjectCount()) == (before, objects)
    for wrong in (int, 3):
        with pytest.raises(TypeError, match="subclass of TensorOwner"):
            plait._core.set_tensor_class(wrong)


def test_released_tensors_are_errors():
    t = plait.ones(2)
    handle = t._h
    del t
    gc.collect()
    other = plait.zeros(3)
    forged = object.__new__(plait.Tensor)
    forged._h = handle
    for f in (lambda: forged + 1, lambda: forged.shape, forged.item, lambda: plait.add(other, forged)):
        with pytest.raises(TypeError, match="was it released"):
            f()
    forged._h = 0


def test_item_raises_what_an_operation_in_place_could_not_do():
    x = plait.tensor([6])
    x //= plait.tensor([0])
    with pytest.raises(ValueError, match="zero"):
        x.item()
