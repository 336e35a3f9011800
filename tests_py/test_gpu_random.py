"""The random generators of a GPU and of the CPU are apart."""

from __future__ import annotations

from gpus import run


def test_generators_of_a_gpu() -> None:
    run(
        """
        import os
        plait.manual_seed(3)
        here = plait.get_rng_state()

        # Seeds of GPUs: those of GPUs that were used, and of those that were not.
        plait.cuda.manual_seed_all(5)
        assert plait.cuda.initial_seed() == 5 and plait.initial_seed() == 3
        plait.cuda.manual_seed_all(6)
        assert plait.cuda.initial_seed() == 6 and plait.cuda.get_rng_state(0).tolist() == [6, *[0] * 15]
        first = plait.rand(8, device="gpu")
        plait.cuda.manual_seed(6)
        assert plait.rand(8, device="gpu").tolist() == first.tolist()
        assert plait.equal(plait.get_rng_state(), here), "the CPU's is as it was"

        # A run goes on where it was.
        module = plait.nn.Dropout(0.5)
        x = plait.ones(64, device="gpu")
        states = plait.get_rng_state(), plait.cuda.get_rng_state_all()
        want, mixed = module(x).tolist(), plait.rand(3).tolist()
        assert not plait.equal(plait.cuda.get_rng_state(), states[1][0]), "the dropout has drawn on the GPU"
        plait.set_rng_state(states[0])
        plait.cuda.set_rng_state_all(states[1])
        assert module(x).tolist() == want and plait.rand(3).tolist() == mixed
        plait.cuda.set_rng_state(states[1][0], device="cuda:0")
        assert module(x).tolist() == want

        plait.cuda.seed()
        assert plait.cuda.initial_seed() not in (3, 5, 6) and plait.initial_seed() == 3
        plait.manual_seed(9)
        assert plait.cuda.initial_seed() == 9, "of all devices"

        # The current GPU's alone.
        if plait.cuda.device_count() > 1:
            plait.cuda.set_device(1)
            plait.cuda.manual_seed(17)
            assert [plait.cuda.get_rng_state(i)[0].item() for i in (1, 0)] == [17, 9]
    """,
        PLAIT_SOFTWARE_GPU="2",
    )


def test_without_gpus_seeds_have_no_effect() -> None:
    import plait

    if plait.cuda.is_available():
        return
    before = plait.get_rng_state()
    plait.cuda.manual_seed(4)
    plait.cuda.manual_seed_all(4)
    plait.cuda.seed_all()
    assert plait.equal(plait.get_rng_state(), before) and plait.cuda.get_rng_state_all() == []


def test_counts_for_a_gpu() -> None:
    run(
        """
        rate = plait.full((4000,), 50.0, device="gpu", requires_grad=True)
        for draw in (plait.poisson, lambda r, g: plait.binomial(r * 2, plait.full_like(r, 0.5), g)):
            g = plait.Generator("gpu").manual_seed(2)
            first = draw(rate, g)
            assert first.device == rate.device and abs(first.mean().item() - 50) < 0.6
            assert not draw(rate, g).equal(first) and draw(rate, g.manual_seed(2)).equal(first)
        plait.poisson(rate).sum().backward()
        assert rate.grad.device == rate.device and not rate.grad.any()
        try:
            plait.binomial(rate, plait.ones(4000))
        except plait.DeviceError as error:
            assert "want prob on the device of count" in str(error)
        else:
            raise AssertionError
        """
    )
