"""The switches for the precision of products, as PyTorch couples them."""

from __future__ import annotations

from collections.abc import Iterator

import plait
import pytest

matmul, cudnn = plait.backends.cuda.matmul, plait.backends.cudnn


@pytest.fixture(autouse=True)
def as_precise_as_at_first() -> Iterator[None]:
    yield
    plait.set_float32_matmul_precision("highest")
    cudnn.allow_tf32 = False
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False


def test_products_are_precise_at_first() -> None:
    assert plait.get_float32_matmul_precision() == "highest"
    assert matmul.allow_tf32 is False and cudnn.allow_tf32 is False
    assert matmul.fp32_precision == cudnn.fp32_precision == cudnn.conv.fp32_precision == "ieee"
    assert matmul.allow_fp16_reduced_precision_reduction is False
    assert matmul.allow_bf16_reduced_precision_reduction is False


def test_the_word_and_the_switch_are_one() -> None:
    for word, tf32 in ("high", True), ("medium", True), ("highest", False), ("Medium", True):
        plait.set_float32_matmul_precision(word)
        assert plait.get_float32_matmul_precision() == word.lower()
        assert matmul.allow_tf32 is tf32
        assert matmul.fp32_precision == ("tf32" if tf32 else "ieee")
    matmul.allow_tf32 = True
    assert plait.get_float32_matmul_precision() == "high", "as PyTorch, also after medium"
    matmul.allow_tf32 = False
    assert plait.get_float32_matmul_precision() == "highest"
    matmul.fp32_precision = "tf32"
    assert plait.get_float32_matmul_precision() == "high"
    matmul.fp32_precision = "none"
    assert plait.get_float32_matmul_precision() == "highest"
    assert cudnn.allow_tf32 is False, "convolutions have their own"


def test_convolutions_have_their_own_switch() -> None:
    cudnn.allow_tf32 = True
    assert cudnn.conv.fp32_precision == "tf32" and matmul.allow_tf32 is False
    cudnn.conv.fp32_precision = "ieee"
    assert cudnn.allow_tf32 is False


def test_sums_of_16_bits_have_a_switch_each() -> None:
    matmul.allow_bf16_reduced_precision_reduction = True
    assert matmul.allow_bf16_reduced_precision_reduction is True
    assert matmul.allow_fp16_reduced_precision_reduction is False
    matmul.allow_fp16_reduced_precision_reduction = True
    matmul.allow_bf16_reduced_precision_reduction = False
    assert matmul.allow_fp16_reduced_precision_reduction is True
    assert matmul.allow_bf16_reduced_precision_reduction is False


def test_mistakes() -> None:
    with pytest.warns(UserWarning, match="low is not one of 'highest', 'high', or 'medium'"):
        plait.set_float32_matmul_precision("low")
    assert plait.get_float32_matmul_precision() == "highest"
    with pytest.raises(TypeError, match="want a string, got int 1"):
        plait.set_float32_matmul_precision(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="allow_tf32: want a bool, got int 1"):
        matmul.allow_tf32 = 1
    with pytest.raises(ValueError, match="fp32_precision: want ieee, tf32 or none, got 'bf16'"):
        cudnn.conv.fp32_precision = "bf16"


def test_the_cpu_computes_as_before() -> None:
    x = plait.randn(17, 33)
    want = x @ x.T
    plait.set_float32_matmul_precision("medium")
    assert plait.equal(x @ x.T, want)


def test_flags_set_switches_within_a_context():
    names = ("enabled", "benchmark", "deterministic", "allow_tf32", "benchmark_limit")
    before = [getattr(cudnn, n) for n in names]
    with cudnn.flags(enabled=True, deterministic=False):
        assert (cudnn.enabled, cudnn.deterministic, cudnn.allow_tf32) == (True, False, False)
        with cudnn.flags(allow_tf32=True):
            assert cudnn.allow_tf32 and cudnn.fp32_precision == "tf32"
        with cudnn.flags(fp32_precision="tf32"):
            assert cudnn.allow_tf32
        assert not cudnn.allow_tf32
    with pytest.raises(ValueError, match="want ieee, tf32 or none"), cudnn.flags(benchmark=False, fp32_precision="x"):
        pass
    assert [getattr(cudnn, n) for n in names] == before


def test_ways_of_attention_are_what_was_said():
    cuda = plait.backends.cuda
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        enable, enabled = getattr(cuda, f"enable_{name}_sdp"), getattr(cuda, f"{name}_sdp_enabled")
        assert enabled() is True
        enable(False)
        assert enabled() is False
        enable(True)
