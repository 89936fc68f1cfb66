"""A matrix product is measured by its definition, and a wrong one is seen."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.gemm.run import REDUCED, ROUNDING, _float32_sums, error_in_bounds, run
from benchmarks.gemm.spec import DTYPES, Gemm, sizes
from benchmarks.spec import Place, from_config, to_config
from benchmarks.world import World
from clusters.cluster import Cluster
from suites.test_gemm import products


@pytest.fixture
def world() -> World:
    return World(rank=0, size=1, local_rank=0, place=Place(), device=torch.device("cpu"), node="a", nodes=("a",))


def quick(**changed: object) -> Gemm:
    return Gemm(**{"shapes": ("96x64x128",), "repetitions": 3, "sample_s": 1e-3, "warm_up_s": 0.0, **changed})


def product(dtype: str, *, k: int = 2048) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    a, b = (torch.randn(s, generator=generator).to(ROUNDING[dtype][0]) for s in ((32, k), (k, 24)))
    return a, b, (cut(a) @ cut(b) if dtype == "tf32" else a @ b)


def cut(tensor: torch.Tensor) -> torch.Tensor:
    """What a TF32 tensor core reads of a float32: 10 bits of fraction, to nearest."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_it_delivers_what_it_promised(world: World):
    spec = quick(dtypes=("fp32", "bf16"))
    got = list(run(spec, world))
    assert [(m.metric, m.params) for m in got] == [(m.name, m.params) for m in spec.emits(world.place)]
    for measurement in got:
        assert len(measurement.samples) == (3 if measurement.metric == "gemm.flops" else 1)
        assert all(s >= 0 and math.isfinite(s) for s in measurement.samples)
        assert measurement.subject == world.me()


def test_flops_are_two_m_n_k_over_the_time(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(World, "timed", lambda _, work: (work(), 2e-3)[1])
    got = list(run(quick(dtypes=("fp32",)), world))
    assert got[0].samples == (2 * 96 * 64 * 128 / 2e-3,) * 3  # one product per sample: it takes longer than sample_s


@pytest.mark.parametrize("dtype", sorted(ROUNDING))
def test_a_right_product_is_within_its_bound(dtype: str):
    assert 0 < error_in_bounds(*product(dtype), dtype=dtype) < 0.7


def test_a_tf32_product_is_no_fp32_product():
    assert error_in_bounds(*product("tf32"), dtype="fp32") > 1


def test_the_process_keeps_its_own_settings():
    names = ("allow_tf32", *REDUCED)
    settings = torch.backends.cuda.matmul
    before = [getattr(settings, name) for name in names]
    with _float32_sums(tensor_cores=True):
        assert [getattr(settings, name) for name in names] == [True, False, False]
    assert [getattr(settings, name) for name in names] == before


@pytest.mark.parametrize("dtype", sorted(ROUNDING))
def test_one_lost_term_of_one_row_is_seen(dtype: str):
    a, b, c = product(dtype)
    lost = a[31, 5] * b[5]
    c[31] -= lost.sign() * lost.abs().clamp(min=0.5).to(c.dtype)
    assert error_in_bounds(a, b, c, dtype=dtype) > 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_wrong(value: float):
    a, b, c = product("fp32")
    c[0, 0] = value
    assert error_in_bounds(a, b, c, dtype="fp32") == math.inf


def test_lower_precision_than_promised_is_seen():
    a, b, _ = product("fp32")
    half = (a.bfloat16() @ b.bfloat16()).float()
    assert error_in_bounds(a, b, half, dtype="fp32") > 1


@settings(max_examples=30, deadline=None)
@given(m=st.integers(1, 40), n=st.integers(1, 40), k=st.integers(1, 300), seed=st.integers(0, 2**31))
def test_every_shape_is_within_its_bound(m: int, n: int, k: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator)
    assert error_in_bounds(a, b, a @ b, dtype="fp32") < 1


@given(m=st.integers(1, 10**6), n=st.integers(1, 10**6), k=st.integers(1, 10**6))
def test_a_shape_reads_back(m: int, n: int, k: int):
    assert sizes(f"{m}x{n}x{k}") == (m, n, k)
    assert sizes(f"{n}") == (n, n, n)


@pytest.mark.parametrize("shape", ["", "0", "8x8", "8x8x8x8", "8x-1x8", "big", "8 x 8 x 8"])
def test_a_bad_shape_is_refused_with_an_example(shape: str):
    with pytest.raises(ValueError, match="8192x28672x8192"):
        Gemm(shapes=(shape,))


def test_a_bad_dtype_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="bf16"):
        Gemm(dtypes=("bfloat16",))
    with pytest.raises(ValueError, match="GPUs only"):
        Gemm(dtypes=("tf32",)).emits(Place())
    assert set(DTYPES) == set(ROUNDING)


def test_a_gpu_is_measured_in_what_it_is_made_for():
    assert {m.params["dtype"] for m in Gemm().emits(Place(device="cuda"))} == {"bf16", "tf32", "fp32"}


def test_the_spec_survives_the_plan():
    spec, place = quick(), Place(ranks_per_node=4)
    assert from_config(to_config(spec, place)) == (spec, place)


def test_the_cluster_file_names_the_shapes():
    cluster = Cluster(name="c", path="", text="", sha256="", settings={"gemm": {"shapes": [512, "64x32x16"]}})
    assert products(cluster).shapes == ("512", "64x32x16")
