"""`load` takes classes and functions that the program allows by name, as PyTorch 2.15 does."""

import collections
import dataclasses
import enum
import io
import os
import threading

import plait
import pytest
from plait._serialization.unpickling import DataUnpickler
from plait.serialization import (
    CheckpointError,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    safe_globals,
)


@dataclasses.dataclass
class Settings:
    rate: float
    weight: object


class Point(collections.namedtuple("Point", "x y")):
    __slots__ = ()


class Colour(enum.Enum):
    RED = 1


class Named(dict):
    pass


class Slotted:
    __slots__ = ("value",)


class Stateful:
    def __getstate__(self):
        return (1, 2)

    def __setstate__(self, state):
        self.state = state


def three(x):
    return 3 * x


class Reduced:
    def __reduce__(self):
        return three, (2,)


def slotted():
    out = Slotted()
    out.value = 5
    return out


def file_of(value):
    file = io.BytesIO()
    plait.save(value, file)
    file.seek(0)
    return file


@pytest.fixture(autouse=True)
def nothing_allowed():
    clear_safe_globals()
    yield
    clear_safe_globals()


@pytest.mark.parametrize(
    ("value", "allowed", "seen"),
    [
        (Settings(0.5, "w"), Settings, lambda v: v == Settings(0.5, "w")),
        (Point(1, 2), Point, lambda v: v == Point(1, 2) and type(v) is Point),
        (Colour.RED, Colour, lambda v: v is Colour.RED),
        (Named(a=1), Named, lambda v: v == {"a": 1} and type(v) is Named),
        (slotted(), Slotted, lambda v: v.value == 5),
        (Stateful(), Stateful, lambda v: v.state == (1, 2)),
        (Reduced(), three, lambda v: v == 6),
        ({"f": three}, three, lambda v: v == {"f": three}),
        ({"c": Settings}, Settings, lambda v: v == {"c": Settings}),
    ],
)
def test_what_is_allowed_is_loaded(value, allowed, seen):
    name = f"{allowed.__module__}.{allowed.__qualname__}"
    with pytest.raises(CheckpointError, match=f"names {name}, .*add_safe_globals"):
        plait.load(file_of(value))
    assert get_unsafe_globals_in_checkpoint(file_of(value)) == [name]
    with safe_globals([allowed]):
        assert get_unsafe_globals_in_checkpoint(file_of(value)) == []
        assert seen(plait.load(file_of(value)))
    assert get_safe_globals() == []


def test_objects_hold_tensors():
    add_safe_globals([Settings])
    back = plait.load(file_of([Settings(0.5, plait.ones(2)), plait.zeros(1)]))
    assert back[0].weight.tolist() == [1, 1] and back[1].tolist() == [0]


def test_another_name_and_class():
    with safe_globals([(Named, f"{__name__}.Settings")]):
        (back,) = plait.load(file_of([Settings(0.5, 1)]))
    assert type(back) is Named and vars(back) == {"rate": 0.5, "weight": 1}


def test_a_class_is_no_object_whose_state_a_file_may_set():
    add_safe_globals([Settings])
    change = b"\x80\x02c" + __name__.encode() + b"\nSettings\n}X\x04\x00\x00\x00evilK\x01sb."
    with pytest.raises(CheckpointError, match="sets the state of a type"):
        DataUnpickler(None).load(change)
    assert not hasattr(Settings, "evil")


def test_what_is_never_allowed():
    with safe_globals([os.system]), pytest.raises(CheckpointError, match=r"names (posix|nt)\.system, .*any code; if"):
        plait.load(file_of(os.system))


class Breaks(Stateful):
    def __setstate__(self, state):
        raise KeyError("no state")


def test_errors_of_classes_are_the_files():
    with safe_globals([Breaks]), pytest.raises(CheckpointError, match="damaged: KeyError: 'no state'"):
        plait.load(file_of(Breaks()))


def test_those_of_a_context_are_its_threads():
    add_safe_globals([Settings])
    with safe_globals([Settings, three]):
        assert set(get_safe_globals()) == {Settings, three}
        found = []
        thread = threading.Thread(target=lambda: found.extend(get_safe_globals()))
        thread.start()
        thread.join()
        assert found == [Settings]
    assert get_safe_globals() == [Settings]
    clear_safe_globals()
    assert get_safe_globals() == []


def test_wrong_arguments():
    for wrong, error, text in (
        (["x"], TypeError, "want classes and functions, got str"),
        ([(three, 1)], TypeError, "want the name as a string, got int"),
        ([(three, "a.b", 1)], ValueError, "got 3 values"),
    ):
        with pytest.raises(error, match=text):
            add_safe_globals(wrong)
    with pytest.raises(CheckpointError, match="no checkpoint in a zip archive"):
        get_unsafe_globals_in_checkpoint(io.BytesIO(b"nothing"))
