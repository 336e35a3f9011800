"""`vmap`, `jvp` and what is made of them on a GPU, compared with the CPU."""

import gpus

COMPARED = """
    import warnings

    from plait import func, nn

    F = nn.functional

    def both(name, f, *args):
        made = []
        for device in ("cpu", "cuda"):
            plait.manual_seed(3)
            out = f(*(a.to(device) if isinstance(a, plait.Tensor) else a for a in args))
            made.append(list(out) if isinstance(out, tuple | list) else [out])
        for want, got in zip(*made, strict=True):
            assert got.device.type == "cuda", (name, got.device)
            assert plait.allclose(got.cpu(), want, atol=1e-4, rtol=1e-4), (name, want, got)

    plait.manual_seed(0)
    x, w = plait.randn(4, 3), plait.randn(3)
"""


def test_forward_mode_and_jacobians():
    gpus.run(
        COMPARED
        + """
    quadratic = lambda v: (v[:, None] * v).exp().sum(0)
    for transform in (func.jacfwd, func.jacrev):
        both(transform.__name__, transform(quadratic), w)
    both("hessian", func.hessian(lambda v: (v**3).sum() * v.sum()), w)
    image, signal = plait.randn(2, 4, 5, 5), plait.randn(2, 16)
    net = nn.MultiheadAttention(4, 2)
    for name, f, at in [
        ("products", lambda v: (v.sin() @ v.T).softmax(-1), x),
        ("sorted", lambda v: v.sort(1)[0].cumsum(0), x),
        ("normalized", lambda v: F.layer_norm(v, (3,)) + F.normalize(v), x),
        ("convolved", lambda v: F.max_pool2d(F.conv2d(v, v[:, :, :3, :3]), 2), image),
        ("attended", lambda v: net.to(v.device)(v, v, v)[0], plait.randn(2, 3, 4)),
        ("transformed", lambda v: plait.stft(v, 8, return_complex=True).abs(), signal),
        ("solved", lambda v: plait.linalg.solve(v.T @ v + plait.eye(3, device=v.device), v[0]), x),
    ]:
        both(name, lambda v: func.jvp(f, (v,), (v.cos(),)), at)
        both(name, lambda v: func.jvp(func.grad(lambda u: (f(u) ** 2).sum()), (v,), (v.cos(),)), at)
        both(name, func.vmap(lambda v: func.jvp(f, (v,), (v.cos(),))), plait.stack([at, at * 0.9]))
    """
    )


def test_batches_of_samples():
    gpus.run(
        COMPARED
        + """
    warnings.simplefilter("ignore")  # of what draws the same numbers, or has no rule for its arguments
    both("products", func.vmap(lambda r, k: (r @ k).tanh(), in_dims=(0, None)), x, w)
    both("gradients", func.vmap(func.grad(lambda k, r: (r @ k) ** 2), in_dims=(None, 0)), w, x)
    both("kernels", func.vmap(F.conv2d), plait.randn(3, 2, 5, 5), plait.randn(3, 2, 2, 3, 3))
    for layer in (nn.LSTM, nn.GRU):
        net = layer(3, 4)

        def gradients(r):
            params = {k: v.detach().to(r.device) for k, v in net.named_parameters()}
            loss = lambda p, r: (func.functional_call(net, p, (r,))[0] ** 2).sum()
            return list(func.vmap(func.grad(loss), in_dims=(None, 0))(params, r).values())

        for steps in (2, 6):
            both(f"{layer.__name__} of {steps} steps", gradients, plait.randn(3, steps, 1, 3))
    back = lambda s: plait.istft(plait.stft(s, 8, return_complex=True), 8)
    both("signals", func.vmap(back), plait.randn(3, 32))
    for how in ("none", "mean"):
        ctc = lambda p, t: F.ctc_loss(p.log_softmax(-1), t, [5], [2], reduction=how)
        both("ctc_loss", func.vmap(ctc, in_dims=(0, None)), plait.randn(3, 5, 1, 4), plait.tensor([[1, 2]]))
    bag = lambda w, i: (F.embedding_bag(i, w, mode="sum", padding_idx=2) ** 2).sum()
    bags = plait.tensor([[[0, 1], [2, 2]], [[3, 1], [0, 0]]])
    both("bags", func.vmap(func.grad(bag), in_dims=(None, 0)), plait.randn(4, 3), bags)
    both("put", func.vmap(lambda r, i: r.put(i, r, accumulate=True)), x, plait.tensor([[0, 0, 2]] * 4))
    for f in [
        lambda r: r.masked_scatter(r > 0, r.flip(0) * 2),
        lambda r: plait.histc(r, 5, -1, 1),
        lambda r: plait.cov(plait.stack([r, r.exp()])),
        lambda r: r.outer(r).renorm(2, 0, 0.5),
        lambda r: plait.block_diag(plait.vander(r), plait.combinations(r)),
    ]:
        both("composed", func.vmap(f), x)
    for how in ("same", "different"):
        for f in (F.dropout, F.alpha_dropout, plait.randn_like, lambda r: plait.bernoulli(r / 2)):
            both(how, func.vmap(f, randomness=how), plait.ones(3, 8))
    """
    )
