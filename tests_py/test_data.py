"""Datasets, samplers and loaders."""

import collections
import math
import pickle
import threading
import time
import types

import numpy as np
import plait
import pytest
from plait.utils import data
from plait.utils.data import dataloader
from plait.utils.data._utils import collate as collating


class Squares(data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        time.sleep(0.002 * (i % 3 == 0))
        return plait.tensor([float(i), float(i * i)]), i


class Range(data.IterableDataset):
    def __init__(self, start, stop):
        self.start, self.stop = start, stop

    def __iter__(self):
        info = data.get_worker_info()
        if info is None:
            return iter(range(self.start, self.stop))
        return iter(range(self.start + info.id, self.stop, info.num_workers))


def lists(loader):
    return [b.tolist() if isinstance(b, plait.Tensor) else [p.tolist() for p in b] for b in loader]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_order_does_not_depend_on_workers(workers):
    def make(n):
        plait.manual_seed(5)
        return data.DataLoader(Squares(23), batch_size=4, shuffle=True, num_workers=n)

    one, other = make(0), make(workers)
    plait.manual_seed(5)
    want = [lists(one), lists(one)]
    plait.manual_seed(5)
    assert [lists(other), lists(other)] == want
    assert want[0] != want[1]
    assert sorted(i for b in want[0] for i in b[1]) == list(range(23))
    assert len(other) == 6
    assert len(want[0]) == 6


def test_generator_decides():
    a = data.DataLoader(Squares(9), shuffle=True, generator=plait.Generator().manual_seed(3))
    b = data.DataLoader(Squares(9), shuffle=True, num_workers=2, generator=plait.Generator().manual_seed(3))
    assert lists(a) == lists(b)


def test_drop_last_and_batch_sampler():
    assert len(lists(data.DataLoader(Squares(10), batch_size=4, drop_last=True))) == 2
    loader = data.DataLoader(Squares(10), batch_sampler=[[1, 2], [5]], num_workers=2)
    assert [b[1] for b in lists(loader)] == [[1, 2], [5]]
    samples = list(data.DataLoader(Squares(3), batch_size=None))
    assert [s[1] for s in samples] == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_iterable(workers, persistent):
    if persistent and not workers:
        pytest.skip("wants workers")
    loader = data.DataLoader(Range(3, 14), batch_size=2, num_workers=workers, persistent_workers=persistent)
    first, second = lists(loader), lists(loader)
    assert first == second
    assert sorted(i for b in first for i in b) == list(range(3, 14))


def test_workers_know_themselves_and_change_their_own_copy():
    def divide(worker):
        info = data.get_worker_info()
        assert info.id == worker
        share = math.ceil((info.dataset.stop - info.dataset.start) / info.num_workers)
        info.dataset.start += worker * share
        info.dataset.stop = min(info.dataset.start + share, info.dataset.stop)

    class Plain(Range):
        def __iter__(self):
            return iter(range(self.start, self.stop))

    dataset = Plain(0, 7)
    loader = data.DataLoader(dataset, num_workers=2, worker_init_fn=divide)
    assert lists(loader) == [[0], [4], [1], [5], [2], [6], [3]]
    assert (dataset.start, dataset.stop) == (0, 7)
    assert data.get_worker_info() is None


class Noise(data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        time.sleep(0.001 * (i % 2))
        return plait.rand(2)


def test_random_numbers_of_workers_follow_the_seed():
    def draw():
        plait.manual_seed(1)
        return lists(data.DataLoader(Noise(), batch_size=2, num_workers=3))

    first = draw()
    assert draw() == first
    assert len({tuple(s) for b in first for s in b}) == 8


def test_errors_come_with_their_traceback():
    class Bad(Squares):
        def __getitem__(self, i):
            if i == 5:
                raise KeyError("sample five")
            return super().__getitem__(i)

    loader = iter(data.DataLoader(Bad(8), batch_size=2, num_workers=2))
    assert next(loader)[1].tolist() == [0, 1]
    assert next(loader)[1].tolist() == [2, 3]
    with pytest.raises(KeyError, match="sample five") as e:
        next(loader)
    assert any("worker 0" in n for n in e.value.__notes__)
    assert any("__getitem__" in str(entry) for entry in e.traceback)
    assert next(loader)[1].tolist() == [6, 7]
    with pytest.raises(StopIteration):
        next(loader)


def test_error_of_worker_init():
    def bad(worker):
        raise ValueError("no start")

    with pytest.raises(ValueError, match="no start"):
        list(data.DataLoader(Squares(4), num_workers=1, worker_init_fn=bad))


def test_timeout():
    class Slow(Squares):
        def __getitem__(self, i):
            gate.wait(5)
            return i

    gate = threading.Event()
    with pytest.raises(RuntimeError, match="no batch in"):
        next(iter(data.DataLoader(Slow(4), num_workers=1, timeout=0.05)))
    gate.set()


def test_threads_end_with_a_pass_that_is_given_up():
    # Threads of earlier passes may still be ending, so only those of this pass are looked at.
    earlier = set(threading.enumerate())
    it = iter(data.DataLoader(Squares(100), num_workers=2))
    next(it)
    workers = [t for t in threading.enumerate() if t not in earlier and t.name.startswith("DataLoader worker")]
    assert len(workers) == 2
    del it
    for worker in workers:
        worker.join(timeout=30)
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.parametrize("persistent", [False, True])
def test_threads_end_where_ctrl_c_comes_while_they_start(persistent, monkeypatch):
    earlier, start = set(threading.enumerate()), threading.Thread.start

    def interrupted(self):
        start(self)
        if self.name == "DataLoader worker 1":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        iter(data.DataLoader(Squares(100), num_workers=3, persistent_workers=persistent))
    for worker in set(threading.enumerate()) - earlier:
        worker.join(timeout=30)
        assert not worker.is_alive()


def test_datasets():
    tensors = data.TensorDataset(plait.tensor(range(6)), plait.tensor(range(6)) * 2)
    assert [t.item() for t in tensors[2]] == [2, 4]
    batches = lists(data.DataLoader(tensors, batch_size=4))
    assert batches == [[[0, 1, 2, 3], [0, 2, 4, 6]], [[4, 5], [8, 10]]]
    both = tensors + tensors
    assert len(both) == 12
    assert both[7][0].item() == 1
    assert both[-1][0].item() == 5
    with pytest.raises(IndexError):
        both[12]
    stacked = data.StackDataset(x=tensors, y=Squares(6))
    assert set(stacked[1]) == {"x", "y"}
    with pytest.raises(ValueError, match="size mismatch"):
        data.StackDataset(Squares(1), Squares(2))
    assert list(data.ChainDataset([Range(0, 2), Range(5, 6)])) == [0, 1, 5]
    part = data.Subset(tensors, [5, 1])
    assert lists(data.DataLoader(part, batch_size=2)) == [[[5, 1], [10, 2]]]


def test_random_split():
    g = plait.Generator().manual_seed(0)
    parts = data.random_split(range(10), [0.5, 0.25, 0.25], generator=g)
    assert [len(p) for p in parts] == [6, 2, 2]
    assert sorted(x for p in parts for x in p) == list(range(10))
    assert [len(p) for p in data.random_split(range(3), [1, 2])] == [1, 2]
    with pytest.raises(ValueError, match="do not sum"):
        data.random_split(range(3), [1, 1])


def test_samplers():
    assert sorted(data.SubsetRandomSampler([4, 5, 9])) == [4, 5, 9]
    drawn = list(data.WeightedRandomSampler([0, 1, 0, 3], 400))
    counts = collections.Counter(drawn)
    assert set(counts) == {1, 3}
    assert 230 < counts[3] < 370
    assert sorted(data.WeightedRandomSampler([1, 1, 1], 3, replacement=False)) == [0, 1, 2]
    assert len(list(data.RandomSampler(range(3), replacement=True, num_samples=7))) == 7
    assert sorted(data.RandomSampler(range(3), num_samples=6)) == [0, 0, 1, 1, 2, 2]
    assert list(data.BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    with pytest.raises(ValueError, match="batch_size"):
        data.BatchSampler(range(5), 0, False)


@pytest.mark.parametrize("drop", [False, True])
def test_distributed_sampler(drop):
    ranks = [data.DistributedSampler(range(10), 4, r, drop_last=drop) for r in range(4)]
    seen = [list(s) for s in ranks]
    assert {len(s) for s in seen} == {2 if drop else 3}
    everything = [i for s in seen for i in s]
    assert len(set(everything)) == (8 if drop else 10)
    ranks[0].set_epoch(1)
    assert list(ranks[0]) != seen[0]
    plain = data.DistributedSampler(range(5), 2, 1, shuffle=False)
    assert list(plain) == [1, 3, 0]


@pytest.mark.parametrize("drop", [False, True])
def test_distributed_sampler_is_of_one_length(drop):
    samples = list(range(10))
    sampler = data.DistributedSampler(samples, 2, 0, shuffle=False, drop_last=drop)
    samples[:] = range(7 if drop else 13)
    with pytest.raises(RuntimeError, match=f"got {len(samples)} samples, want at .* 10"):
        list(sampler)


@pytest.mark.parametrize(("epoch", "error"), [(1.5, TypeError), (1 << 64, ValueError), (-(1 << 63) - 1, ValueError)])
def test_distributed_sampler_takes_no_epoch_for_another(epoch, error):
    sampler = data.DistributedSampler(range(10), 2, 0)
    sampler.set_epoch(epoch)
    with pytest.raises(error):
        list(sampler)


def test_collate():
    Point = collections.namedtuple("Point", "x y")
    out = data.default_collate([Point(1, 2.0), Point(3, 4.0)])
    assert isinstance(out, Point)
    assert out.x.dtype is plait.int64
    assert out.y.dtype is plait.float64
    out = data.default_collate([{"a": np.float32(1), "s": "x"}, {"a": np.float32(2), "s": "y"}])
    assert out["a"].tolist() == [1, 2]
    assert out["a"].dtype is plait.float32
    assert out["s"] == ["x", "y"]
    assert data.default_collate([True, False]).dtype is plait.bool
    assert data.default_collate([(1, "x"), (2, "y")])[1] == ("x", "y")
    assert data.default_collate(["x", "y"]) == ["x", "y"]
    with pytest.raises(RuntimeError, match="equal size"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError):
        data.default_collate([object()])
    assert data.default_convert({"a": np.ones(2)})["a"].shape == (2,)


def test_collections_keep_their_class():
    class Named(dict):
        label = ""

    class Listed(list):
        label = ""

    first, second = Named(a=1), Named(a=2)
    first.label = "kept"
    out = data.default_collate([first, second])
    assert type(out) is Named and out.label == "kept" and out["a"].tolist() == [1, 2] and first == {"a": 1}
    assert type(data.default_collate([collections.OrderedDict(a=1)])) is collections.OrderedDict
    view = data.default_collate([types.MappingProxyType({"a": 1}), {"a": 2}])
    assert type(view) is types.MappingProxyType and view["a"].tolist() == [1, 2]
    pair = Listed([1, 2.0])
    pair.label = "kept"
    out = data.default_collate([pair, [3, 4.0]])
    assert type(out) is Listed and out.label == "kept" and out[0].tolist() == [1, 3] and pair == [1, 2.0]
    assert [t.tolist() for t in data.default_collate([range(2), range(2)])] == [[0, 0], [1, 1]]
    assert type(data.default_convert(pair)) is Listed and data.default_convert((1, 2)) == [1, 2]
    assert type(data.default_convert(first)) is Named


def test_collate_functions_by_class():
    class Word:
        def __init__(self, text):
            self.text = text

    class Loud(Word):
        pass

    def join(batch, *, collate_fn_map):
        assert collate_fn_map is functions
        return "".join(w.text for w in batch)

    functions = {**collating.default_collate_fn_map, Word: join}
    out = collating.collate([{"w": Loud("a"), "n": 1}, {"w": Word("b"), "n": 2}], collate_fn_map=functions)
    assert out["w"] == "ab" and out["n"].tolist() == [1, 2]
    with pytest.raises(TypeError, match="found <class 'int'>"):
        collating.collate([1, 2])
    with pytest.raises(TypeError, match="Word"):
        data.default_collate([Word("a")])
    collating.default_collate_fn_map[Word] = lambda batch, collate_fn_map: len([*batch, collate_fn_map]) - 1
    try:
        assert next(iter(data.DataLoader([Word("a"), Loud("b")], batch_size=2))) == 2
    finally:
        del collating.default_collate_fn_map[Word]
    assert collating.np_str_obj_array_pattern.search(np.array(["a"]).dtype.str)
    assert not collating.np_str_obj_array_pattern.search(np.ones(1).dtype.str)


def test_classes_of_passes():
    loader = data.DataLoader(range(4))
    alone, helped = iter(loader), iter(data.DataLoader(range(4), num_workers=1))
    assert type(alone) is dataloader._SingleProcessDataLoaderIter and len(alone) == 4
    assert type(helped) is dataloader._MultiProcessingDataLoaderIter
    assert isinstance(alone, dataloader._BaseDataLoaderIter) and isinstance(helped, dataloader._BaseDataLoaderIter)
    for each in (alone, helped):
        with pytest.raises(NotImplementedError, match="cannot be pickled"):
            pickle.dumps(each)
    helped._shutdown_workers()
    for worker in helped._workers:
        worker.thread.join(30)
        assert not worker.thread.is_alive()


def test_arguments():
    for bad in (
        {"num_workers": -1},
        {"batch_size": 0},
        {"shuffle": True, "sampler": [0]},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"persistent_workers": True},
        {"prefetch_factor": 2},
        {"timeout": -1},
    ):
        with pytest.raises(ValueError):
            data.DataLoader(Squares(2), **bad)


def test_loaders_with_iterators_of_their_own():
    from plait.utils.data import DataLoader, dataloader

    class Doubled:
        def __init__(self, iterator):
            self.iterator = iterator

        def __next__(self):
            return next(self.iterator) * 2

        def __iter__(self):
            return self

        def __del__(self):
            if isinstance(self.iterator, dataloader._MultiProcessingDataLoaderIter):
                self.iterator.__del__()

    class Loader(DataLoader):
        def _get_iterator(self):
            return Doubled(super()._get_iterator())

    data = plait.arange(5)
    for workers, kind in (
        (0, dataloader._SingleProcessDataLoaderIter),
        (2, dataloader._MultiProcessingDataLoaderIter),
    ):
        loader = Loader(data, batch_size=2, num_workers=workers)
        assert [b.tolist() for b in loader] == [[0, 2], [4, 6], [8]]
        made = iter(loader).iterator
        assert isinstance(made, kind) and isinstance(made, dataloader._BaseDataLoaderIter) and len(made) == 3
        assert not hasattr(made, "nothing")
    assert loader._dataset_kind == dataloader._DatasetKind.Map and loader._auto_collation
    assert loader._index_sampler is loader.batch_sampler
    single = DataLoader(data, batch_size=None)
    assert not single._auto_collation and single._index_sampler is single.sampler


def test_batches_in_memory_made_for_them():
    x = plait.arange(6.0).reshape(2, 3)
    storage = x.untyped_storage()._new_shared(6 * x.element_size(), device=x.device)
    out = x.new(storage).resize_(2, 3)
    plait.cat([x[:1], x[1:] * 2], out=out)
    assert out.tolist() == [[0, 1, 2], [6, 8, 10]] and out.dtype is plait.float32
    assert out.untyped_storage().data_ptr() == storage.data_ptr()
