"""Kernels in CUDA C++ equal torch on a GPU, and on the emulator (tests/tools/ptx/test_runs.py)."""

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor

from anyformer.ops.kernels import native
from anyformer.ops.kernels.native import Native

WHERE = "cuda" if torch.cuda.is_available() else "cpu"
SOURCE = str(Path(__file__).with_name("native.cu"))
TURNED = Native(SOURCE, ("SIZE=64",))
ROOM = 2 * 64 * 128
needs = pytest.mark.skipif(native.compiler() is None, reason="NVRTC isn't installed")


def given(n: int) -> Tensor:
    return torch.randn(n, 64, device=WHERE).bfloat16()


def wanted(x: Tensor, scale: float) -> Tensor:
    n = len(x)
    tiles = (scale * x.float()).exp().new_zeros(-(-n // 64) * 64, 64)
    tiles[:n] = (scale * x.float()).exp()
    return tiles.view(-1, 64, 64).mT.sum(0)


def launched(x: Tensor, out: Tensor, scale: float) -> None:
    TURNED.launch("turned", (2, 1, 1), 128, ROOM, x, out, len(x), scale)


# --------------------------------------------------------------------------- run


@needs
@pytest.mark.compiled
@pytest.mark.parametrize("n", [64, 150, 300])
def test_equals_torch(n: int) -> None:
    """Shared memory, copies ahead, squares of a warp, loops, functions, sums where they lie."""
    x, out = given(n), torch.zeros(64, 64, device=WHERE)
    assert native.lacks() is None
    launched(x, out, 0.5)
    torch.testing.assert_close(out, wanted(x, 0.5), rtol=1e-5, atol=1e-5)
    launched(x, out, -1.0)
    want = wanted(x, 0.5) + wanted(x, -1.0)
    torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-5)


@needs
@pytest.mark.gpu
def test_in_a_graph_and_in_another_thread() -> None:
    x, out = given(150), torch.zeros(64, 64, device=WHERE)
    launched(x, out, 0.5)
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launched(x, out, 0.5)
    assert not out.any()
    for _ in range(2):
        graph.replay()
    other = threading.Thread(target=launched, args=(x, out, 0.5))
    other.start()
    other.join()
    torch.testing.assert_close(out, 3 * wanted(x, 0.5), rtol=1e-5, atol=1e-5)


@needs
@pytest.mark.compiled
@pytest.mark.skipif(WHERE == "cuda", reason="a GPU would not forgive it")
def test_what_the_emulator_stops() -> None:
    """It says where; and what a GPU would read as something else."""
    from tools.ptx.faults import KernelError

    x, out = given(64), torch.zeros(64, 64)
    with pytest.raises(KernelError, match=r"lie in no tensor\n +in beyond\(0, 0, 0\), native.cu:5"):
        TURNED.launch("beyond", (1, 1, 1), 128, 0, torch.zeros(100))
    with pytest.raises(KernelError, match=r"turned_param_3 is \.f32, and the launch gives 1"):
        TURNED.launch("turned", (1, 1, 1), 128, ROOM, x, out, 64, 1)
    with pytest.raises(KernelError, match="turned is for 128 threads, not 256"):
        TURNED.launch("turned", (1, 1, 1), 256, ROOM, x, out, 64, 1.0)
    with pytest.raises(KernelError, match="233472 bytes of shared memory of 232448"):
        TURNED.launch("turned", (1, 1, 1), 128, 228 << 10, x, out, 64, 1.0)
    with pytest.raises(ValueError, match="turned has 4 parameters, not 3"):
        TURNED.launch("turned", (1, 1, 1), 128, ROOM, x, out, 64)
    with pytest.raises(ValueError, match=r"no \.entry another"):
        TURNED.launch("another", (1, 1, 1), 128, ROOM, x, out, 64, 1.0)


# ------------------------------------------------------------------------ compile


@needs
def test_code_for_a_gpu_and_ptx() -> None:
    assert native.compiled(TURNED, "sm_90a").startswith(b"\x7fELF")
    text = native.compiled(TURNED, "compute_90a").decode()
    assert ".target sm_90a" in text and ".entry turned" in text and "red.global.add.v4.f32" in text


@needs
def test_what_the_compiler_says() -> None:
    with pytest.raises(RuntimeError) as told:
        native.compiled(Native(SOURCE, ("WIDTH=3",)), "compute_90a")
    assert "can't compile" in str(told.value) and "-DWIDTH=3" in str(told.value)
    assert 'native.cu(6): error: identifier "SIZE" is undefined' in str(told.value)


def test_integers_are_of_32_bits() -> None:
    with pytest.raises(OverflowError, match="turned: 2147483648 is no int of 32 bits"):
        TURNED.launch("turned", (1, 1, 1), 128, ROOM, 2**31)


def test_values_as_c_has_them() -> None:
    x = torch.zeros(4)
    held = [native._held(x) for x in (x[1:], -3, True, 0.5)]
    assert [h.value for h in held] == [x.data_ptr() + 4, -3, 1, 0.5]
    assert [type(h).__name__ for h in held] == ["c_void_p", "c_int", "c_int", "c_float"]


# ---------------------------------------------------------------- what is lacking


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without NVRTC, and without what says how kernels run."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.delenv(native.EMULATED, raising=False)
    monkeypatch.setattr(native, "compiler", lambda: None)
    return monkeypatch


def test_what_is_lacking(nothing: pytest.MonkeyPatch) -> None:
    nothing.setattr(torch.version, "cuda", None)
    assert "needs a CUDA build of torch" in str(native.lacks())
    nothing.setattr(torch.version, "cuda", "12.8")
    assert str(native.lacks()).endswith("NVRTC: pip install nvidia-cuda-nvrtc-cu12")
    nothing.setattr(torch.version, "cuda", "13.0")
    assert str(native.lacks()).endswith("NVRTC: pip install nvidia-cuda-nvrtc")
    nothing.setenv("TRITON_INTERPRET", "1")
    assert "unset TRITON_INTERPRET" in str(native.lacks())


def test_what_the_emulator_lacks(nothing: pytest.MonkeyPatch) -> None:
    """NVRTC and nothing else."""
    nothing.setattr(torch.version, "cuda", None)
    nothing.setenv(native.EMULATED, "1")
    assert str(native.lacks()).endswith("NVRTC: pip install nvidia-cuda-nvrtc")
    with pytest.raises(RuntimeError, match="needs NVRTC"):
        native.compiled(Native("no such source"), "compute_90a")
    nothing.setattr(native, "compiler", lambda: "a library")
    assert native.lacks() is None


def test_where_nvrtc_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By name, as torch has it; then in NVIDIA's packages, behind the library that it needs."""
    asked = []
    folder = tmp_path / "cu13" / "lib"
    folder.mkdir(parents=True)
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc.alt.so.13"):
        (folder / name).touch()
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})
    monkeypatch.setattr(native.util, "find_spec", lambda _: spec)
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    def opened(name: str) -> str | None:
        asked.append(name.removeprefix(str(folder)))
        return name if "/" in name else None

    monkeypatch.setattr(native, "_opened", opened)
    assert native.compiler.__wrapped__() == str(folder / "libnvrtc.so.13")
    assert asked == ["libnvrtc.so.13", "/libnvrtc.so.13", "/libnvrtc-builtins.so.13.0"]
    monkeypatch.setattr(native.util, "find_spec", lambda _: None)
    assert native.compiler.__wrapped__() is None
