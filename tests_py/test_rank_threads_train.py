"""Two threads of each of several ranks: one trains a replica, the other reads, clears and saves it."""

import io
import threading

import plait
import pytest
from plait import distributed as dist
from plait import nn, optim
from ranks import on_ranks

NAMED = ("two threads use one", "the reduction of the last step has not finished", "went while it was averaged")


def train(rank, steps, clears):
    plait.manual_seed(3)
    layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    model = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=1e-4)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    stop, wrong = threading.Event(), []

    def disturb():
        while not stop.is_set():
            try:
                for p in model.parameters():
                    assert p.detach().numpy().shape == tuple(p.shape)
                    if clears:
                        p.grad = None
                    elif p.grad is not None:
                        p.grad.sum()
                plait.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, io.BytesIO())
            except Exception as error:
                if not any(said in str(error) for said in NAMED):
                    wrong.append(error)

    other = threading.Thread(target=disturb)
    other.start()
    done = 0
    try:
        for step in range(steps):
            x = plait.full((4, 6), float(rank + step) / 7)
            try:
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                done += 1
            except RuntimeError as error:
                if not clears or not any(said in str(error) for said in NAMED):
                    raise
                break  # the other ranks learn it when this one leaves
    finally:
        stop.set()
        other.join()
    assert not wrong, wrong[:2]
    return done, [p.detach().tolist() for p in model.parameters()]


def test_a_replica_is_read_and_saved_while_it_is_trained():
    results = on_ranks(3, train, 30, False)
    assert all(done == 30 for done, _ in results)
    assert results[0][1] == results[1][1] == results[2][1]


@pytest.mark.parametrize("steps", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_gradients_go_while_they_are_averaged(steps):
    """There is an end, whatever the ranks find."""
    try:
        assert len(on_ranks(2, train, steps, True)) == 2
    except dist.DistError as error:
        assert "rank" in str(error)
