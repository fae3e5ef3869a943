"""Each instruction does what the manual of PTX says, on numbers where that is not plain."""

import numpy as np
import pytest
import torch

from tests.tools.ptx.texts import computed, played
from tools.ptx.faults import KernelError

I16, I32, I64, U16, U32, U64 = np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64
F16, F32 = np.float16, np.float32
NAN, INF = float("nan"), float("inf")
LEAST, MOST = -(2**31), 2**31 - 1


def bf16(*values: float) -> np.ndarray:
    """Numbers that bfloat16 has, as their bits."""
    return (np.array(values, F32).view(U32) >> 16).astype(U16)


def pair(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Two numbers of 16 bits in one register."""
    return np.stack([low.view(U16), high.view(U16)], 1).reshape(-1).view(U32)


def a(kind, *values) -> np.ndarray:
    return np.array(values, kind)


WHOLE = {
    "add.s32 {0}, {1}, {2};": (a(I32, MOST, -1), a(I32, 1, -1), a(I32, LEAST, -2)),
    "add.u32 {0}, {1}, {2};": (a(U32, 2**32 - 1), a(U32, 2), a(U32, 1)),
    "add.s16 {0}, {1}, {2};": (a(I16, 2**15 - 1), a(I16, 1), a(I16, -(2**15))),
    "add.u64 {0}, {1}, {2};": (a(U64, 2**64 - 1), a(U64, 3), a(U64, 2)),
    "add.s32 {0}, {1}, -5;": (a(I32, 3), a(I32, -2)),
    "sub.s32 {0}, {1}, {2};": (a(I32, LEAST, 1), a(I32, 1, 4), a(I32, MOST, -3)),
    "mul.lo.s32 {0}, {1}, {2};": (a(I32, 1 << 16, -3), a(I32, 1 << 16, 5), a(I32, 0, -15)),
    "mul.wide.s32 {0}, {1}, {2};": (a(I32, -3), a(I32, 1 << 30), a(I64, -3 << 30)),
    "mul.wide.u32 {0}, {1}, {2};": (a(U32, 2**32 - 1), a(U32, 2), a(U64, 2**33 - 2)),
    "mul.hi.u32 {0}, {1}, {2};": (a(U32, 2**32 - 1), a(U32, 16), a(U32, 15)),
    "mul.hi.s32 {0}, {1}, {2};": (a(I32, -1, 1 << 30), a(I32, 1, 8), a(I32, -1, 2)),
    "mad.lo.s32 {0}, {1}, {2}, {3};": (a(I32, MOST), a(I32, 2), a(I32, 7), a(I32, 5)),
    "mad.wide.s32 {0}, {1}, {2}, {3};": (a(I32, -2), a(I32, MOST), a(I64, 1), a(I64, -(2**32) + 3)),
    "div.s32 {0}, {1}, {2};": (a(I32, -7, 7, 7), a(I32, 2, -2, 2), a(I32, -3, -3, 3)),
    "div.u32 {0}, {1}, {2};": (a(U32, 2**32 - 1), a(U32, 2), a(U32, 2**31 - 1)),
    "rem.s32 {0}, {1}, {2};": (a(I32, -7, 7), a(I32, 2, -2), a(I32, -1, 1)),
    "neg.s32 {0}, {1};": (a(I32, 5, LEAST), a(I32, -5, LEAST)),
    "abs.s32 {0}, {1};": (a(I32, -5, 5), a(I32, 5, 5)),
    "min.s32 {0}, {1}, {2};": (a(I32, -1, 4), a(I32, 1, 3), a(I32, -1, 3)),
    "min.u32 {0}, {1}, {2};": (a(U32, 2**32 - 1), a(U32, 1), a(U32, 1)),
    "max.s32 {0}, {1}, {2};": (a(I32, -1, 4), a(I32, 1, 3), a(I32, 1, 4)),
}
BITWISE = {
    "shl.b32 {0}, {1}, {2};": (a(U32, 3, 3, 3, 3), a(U32, 1, 31, 32, 40), a(U32, 6, 1 << 31, 0, 0)),
    "shr.u32 {0}, {1}, {2};": (a(U32, 1 << 31, 1 << 31), a(U32, 31, 32), a(U32, 1, 0)),
    "shr.s32 {0}, {1}, {2};": (a(I32, -8, -8, 8), a(U32, 1, 40, 40), a(I32, -4, -1, 0)),
    "shl.b64 {0}, {1}, {2};": (a(U64, 1, 1), a(U32, 63, 64), a(U64, 1 << 63, 0)),
    "shf.l.wrap.b32 {0}, {1}, {2}, {3};": (
        *(a(U32, 0x80000001, 0x80000001), a(U32, 0xF0, 0xF0), a(U32, 4, 36)),
        a(U32, 0xF08, 0xF08),
    ),
    "shf.r.wrap.b32 {0}, {1}, {2}, {3};": (
        *(a(U32, 0x12345678), a(U32, 0xABCDEF01), a(U32, 8), a(U32, 0x01123456)),
    ),
    "shf.r.clamp.b32 {0}, {1}, {2}, {3};": (a(U32, 1), a(U32, 7), a(U32, 40), a(U32, 7)),
    "and.b32 {0}, {1}, {2};": (a(U32, 0b1100), a(U32, 0b1010), a(U32, 0b1000)),
    "or.b32 {0}, {1}, {2};": (a(U32, 0b1100), a(U32, 0b1010), a(U32, 0b1110)),
    "xor.b32 {0}, {1}, {2};": (a(U32, 0b1100), a(U32, 0b1010), a(U32, 0b0110)),
    "not.b32 {0}, {1};": (a(U32, 1), a(U32, 2**32 - 2)),
    "lop3.b32 {0}, {1}, {2}, {3}, 0x1b;": (
        *(a(U32, 0b11110000), a(U32, 0b11001100), a(U32, 0b10101010)),
        a(U32, 0xFFFFFF00 | 0b00011011),
    ),
    "bfe.u32 {0}, {1}, 4, 8;": (a(U32, 0xABCDEF), a(U32, 0xDE)),
    "bfi.b32 {0}, {1}, {2}, 4, 8;": (
        a(U32, 0xDE, 0x1DE),
        a(U32, MOST, 0),
        a(U32, 0x7FFFFDEF, 0xDE0),
    ),
    "bfi.b32 {0}, {1}, {2}, 8, 0;": (a(U32, MOST), a(U32, 0xAB), a(U32, 0xAB)),
    "bfe.s32 {0}, {1}, 4, 4;": (a(I32, 0xE0, 0x70), a(I32, -2, 7)),
    "popc.b32 {0}, {1};": (a(U32, 0xF0F, 0), a(U32, 8, 0)),
    "clz.b32 {0}, {1};": (a(U32, 1 << 20, 0), a(U32, 11, 32)),
    "brev.b32 {0}, {1};": (a(U32, 1, 6), a(U32, 1 << 31, 3 << 29)),
    "prmt.b32 {0}, {1}, {2}, 0x5410;": (a(U32, 0x11112222), a(U32, 0x33334444), a(U32, 0x44442222)),
    "prmt.b32 {0}, {1}, {2}, 0x0007;": (a(U32, 0x11), a(U32, 0x99000000), a(U32, 0x11111199)),
    "prmt.b32 {0}, {1}, {2}, 0x800f;": (a(U32, 0x81), a(U32, 0x7F000000), a(U32, 0xFF818100)),
    "selp.b32 {0}, {1}, {2}, {3};": (a(U32, 1), a(U32, 2), a(bool, True, False), a(U32, 1, 2)),
}
SMALL = 2.0**-12  # 1 + SMALL, squared, has a bit more than float32
FLOAT = {
    "add.f32 {0}, {1}, {2};": (a(F32, 1, INF), a(F32, 2**-25, -INF), a(F32, 1, NAN)),
    "min.f32 {0}, {1}, {2};": (a(F32, NAN, 2, 3), a(F32, 1, NAN, 4), a(F32, 1, 2, 3)),
    "max.f32 {0}, {1}, {2};": (a(F32, NAN, 2, 3), a(F32, 1, NAN, 4), a(F32, 1, 2, 4)),
    "min.NaN.f32 {0}, {1}, {2};": (a(F32, NAN, 2), a(F32, 1, 3), a(F32, NAN, 2)),
    "max.NaN.f32 {0}, {1}, {2};": (a(F32, 1, 2), a(F32, NAN, 3), a(F32, NAN, 3)),
    "fma.rn.f32 {0}, {1}, {2}, {3};": (
        *(a(F32, 1 + SMALL), a(F32, 1 + SMALL), a(F32, -1 - 2 * SMALL), a(F32, SMALL**2)),
    ),
    "div.full.f32 {0}, {1}, {2};": (a(F32, 1, 1), a(F32, 4, 0), a(F32, 0.25, INF)),
    "add.f32 {0}, {1}, 0f3FC00000;": (a(F32, 1), a(F32, 2.5)),
    "add.sat.f32 {0}, {1}, {2};": (a(F32, 1, -3), a(F32, 1, 1), a(F32, 1, 0)),
    "copysign.f32 {0}, {1}, {2};": (a(F32, -3), a(F32, 2), a(F32, -2)),
    "ex2.approx.ftz.f32 {0}, {1};": (a(F32, 3, -INF), a(F32, 8, 0)),
    "lg2.approx.f32 {0}, {1};": (a(F32, 8, 0), a(F32, 3, -INF)),
    "rcp.approx.f32 {0}, {1};": (a(F32, 4), a(F32, 0.25)),
    "sqrt.approx.f32 {0}, {1};": (a(F32, 9, -1), a(F32, 3, NAN)),
    "rsqrt.approx.f32 {0}, {1};": (a(F32, 16), a(F32, 0.25)),
    "sin.approx.f32 {0}, {1};": (a(F32, 0), a(F32, 0)),
    "cos.approx.f32 {0}, {1};": (a(F32, 0), a(F32, 1)),
    "tanh.approx.f32 {0}, {1};": (a(F32, 0, 20), a(F32, 0, 1)),
    "add.f16 {0}, {1}, {2};": (a(F16, 2048, 65504), a(F16, 1, 65504), a(F16, 2048, INF)),
}
BRAIN = {
    "add.rn.bf16 {0}, {1}, {2};": (bf16(256, 256), bf16(1, 3), bf16(256, 260)),
    "mul.bf16x2 {0}, {1}, {2};": (
        *(pair(bf16(3), bf16(-2)), pair(bf16(5), bf16(0.5)), pair(bf16(15), bf16(-1))),
    ),
    "fma.rn.relu.bf16 {0}, {1}, {2}, {3};": (*(bf16(3, 3), bf16(-1, 1), bf16(1, 1), bf16(0, 4)),),
    "fma.rn.f16x2 {0}, {1}, {2}, {3};": (
        *(pair(a(F16, 3), a(F16, 2)), pair(a(F16, 5), a(F16, 4)), pair(a(F16, 1), a(F16, -8))),
        pair(a(F16, 16), a(F16, 0)),
    ),
}
TURNED = {
    "cvt.rn.bf16.f32 {0}, {1};": (
        a(F32, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -INF, NAN, 3.4e38),
        a(U16, 0x3F80, 0x3F82, 0x3F81, 0xFF80, 0x7FFF, 0x7F80),
    ),
    "cvt.rn.bf16x2.f32 {0}, {1}, {2};": (a(F32, 2), a(F32, -1), pair(bf16(-1), bf16(2))),
    "cvt.rn.f16x2.f32 {0}, {1}, {2};": (a(F32, 1e6), a(F32, 3), pair(a(F16, 3), a(F16, INF))),
    "cvt.rn.satfinite.f16x2.f32 {0}, {1}, {2};": (
        *(a(F32, 1e6, 1), a(F32, -INF, 2), pair(a(F16, -65504, 2), a(F16, 65504, 1))),
    ),
    "cvt.f32.f16 {0}, {1};": (a(F16, 0.1, INF), a(F32, F16(0.1), INF)),
    "cvt.f32.bf16 {0}, {1};": (bf16(-1.5), a(F32, -1.5)),
    "cvt.rn.f16.f32 {0}, {1};": (a(F32, 2049, 1e6), a(F16, 2048, INF)),
    "cvt.rzi.s32.f32 {0}, {1};": (
        a(F32, -2.7, 1e20, -1e20, NAN),
        a(I32, -2, MOST, LEAST, 0),
    ),
    "cvt.rzi.u32.f32 {0}, {1};": (a(F32, 2.7, -3, 1e20), a(U32, 2, 0, 2**32 - 1)),
    "cvt.rni.f32.f32 {0}, {1};": (a(F32, 2.5, 3.5, -0.6), a(F32, 2, 4, -1)),
    "cvt.rmi.f32.f32 {0}, {1};": (a(F32, -2.5, 2.5), a(F32, -3, 2)),
    "cvt.rpi.f32.f32 {0}, {1};": (a(F32, -2.5, 2.5), a(F32, -2, 3)),
    "cvt.rn.f32.s32 {0}, {1};": (a(I32, -3, MOST), a(F32, -3, 2**31)),
    "cvt.rn.f32.u32 {0}, {1};": (a(U32, 2**32 - 1), a(F32, 2**32)),
    "cvt.s64.s32 {0}, {1};": (a(I32, -3), a(I64, -3)),
    "cvt.u64.u32 {0}, {1};": (a(U32, 2**32 - 1), a(U64, 2**32 - 1)),
    "cvt.u16.u32 {0}, {1};": (a(U32, 0x12345), a(U16, 0x2345)),
    "cvt.s32.s8 {0}, {1};": (a(U16, 0x01FE), a(I32, -2)),
}
ORDERS = {"eq": (0, 1, 0), "ne": (1, 0, 1), "lt": (1, 0, 0), "le": (1, 1, 0), "gt": (0, 0, 1)}
ORDERS |= {"ge": (0, 1, 1)}
UNSIGNED = {"lo": ORDERS["lt"], "ls": ORDERS["le"], "hi": ORDERS["gt"], "hs": ORDERS["ge"]}
COMPARED = {
    **{
        f"setp.{name}.{kind} {{0}}, {{1}}, {{2}};": (a(to, 1, 2, 3), a(to, 2, 2, 2), a(bool, *want))
        for kind, to in {"s32": I32, "u16": U16, "u64": U64, "f32": F32}.items()
        for name, want in (ORDERS | (UNSIGNED if kind[0] == "u" else {})).items()
    },
    "setp.lt.s32 {0}, {1}, {2};": (a(I32, -1, 2), a(I32, 1, 1), a(bool, True, False)),
    "setp.lt.u32 {0}, {1}, {2};": (a(U32, 2**32 - 1), a(U32, 1), a(bool, False)),
    "setp.lt.f32 {0}, {1}, {2};": (a(F32, 1, NAN), a(F32, 2, 2), a(bool, True, False)),
    "setp.ltu.f32 {0}, {1}, {2};": (a(F32, 3, NAN), a(F32, 2, 2), a(bool, False, True)),
    "setp.ne.f32 {0}, {1}, {2};": (a(F32, 1, NAN), a(F32, 2, NAN), a(bool, True, False)),
    "setp.neu.f32 {0}, {1}, {2};": (a(F32, 1, NAN), a(F32, 1, 1), a(bool, False, True)),
    "setp.nan.f32 {0}, {1}, {2};": (a(F32, 1, 1), a(F32, 1, NAN), a(bool, False, True)),
    "setp.num.f32 {0}, {1}, {2};": (a(F32, 1, 1), a(F32, 1, NAN), a(bool, True, False)),
    "setp.gt.bf16 {0}, {1}, {2};": (bf16(1, -2), bf16(-2, 1), a(bool, True, False)),
    "setp.ge.and.s32 {0}, {1}, {2}, {3};": (
        *(a(I32, 1, 1), a(I32, 1, 1), a(bool, True, False), a(bool, True, False)),
    ),
    "setp.ge.or.s32 {0}, {1}, {2}, {3};": (
        *(a(I32, 0, 1), a(I32, 1, 1), a(bool, False, False), a(bool, False, True)),
    ),
    "setp.lt.s32 %p9|{0}, {1}, {2};": (a(I32, -1, 2), a(I32, 1, 1), a(bool, False, True)),
    "and.pred {0}, {1}, {2};": (a(bool, True, True), a(bool, True, False), a(bool, True, False)),
    "not.pred {0}, {1};": (a(bool, True, False), a(bool, False, True)),
}
PARTS = {
    "mov.b32 {0}, {{{1}, {2}}};": (a(U16, 0x1111), a(U16, 0x2222), a(U32, 0x22221111)),
    "mov.b64 {0}, {{{1}, {2}}};": (a(U32, 1), a(U32, 2), a(U64, (2 << 32) + 1)),
    "mov.b32 {{%rs9, {0}}}, {1};": (a(U32, 0x22221111), a(U16, 0x2222)),
    "mov.b64 {{{0}, _}}, {1};": (a(U64, (2 << 32) + 1), a(U32, 1)),
    "{{ .reg .b32 t; mov.b32 t, 7; add.u32 {0}, {1}, t; }}": (a(U32, 1), a(U32, 8)),
}
ALL = WHOLE | BITWISE | FLOAT | BRAIN | TURNED | COMPARED | PARTS


@pytest.mark.parametrize("instruction", ALL)
def test_computes(instruction: str) -> None:
    *given, want = ALL[instruction]
    found = computed(instruction, *given, to=bool if want.dtype == bool else want.dtype)
    np.testing.assert_array_equal(found, np.resize(want, len(found)))


LANE = np.arange(32)
SHUFFLED = {  # from where, and whether there is somebody
    "idx.b32 %r1|%p1, %r0, 5, 31": (LANE * 0 + 5, LANE >= 0),
    "bfly.b32 %r1|%p1, %r0, 3, 31": (LANE ^ 3, LANE >= 0),
    "up.b32 %r1|%p1, %r0, 2, 0": (np.where(LANE >= 2, LANE - 2, LANE), LANE >= 2),
    "down.b32 %r1|%p1, %r0, 4, 31": (np.where(LANE < 28, LANE + 4, LANE), LANE < 28),
    "bfly.b32 %r1|%p1, %r0, 16, 0x101f": (LANE % 16, LANE >= 16),  # halves: no further than theirs
    "idx.b32 %r1|%p1, %r0, 17, 0x101f": (LANE // 16 * 16 + 1, LANE >= 0),
    "down.b32 %r1|%p1, %r0, 1, 0x181f": (np.where(LANE % 8 < 7, LANE + 1, LANE), LANE % 8 < 7),
}
KEPT = "mad.wide.u32 %rd1, %r0, 4, %rd30;\nst.global.b32 [%rd1], %r1;"


@pytest.mark.parametrize("how", SHUFFLED)
def test_shuffles(how: str) -> None:
    """Threads of two warps, which don't see each other."""
    out, other = torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    body = f"""
        shfl.sync.{how}, -1;
        {KEPT}
        selp.b32 %r2, 1, 0, %p1;
        mad.wide.u32 %rd2, %r0, 4, %rd31;
        st.global.b32 [%rd2], %r2;
        """
    played(body, out, other, threads=64)
    where, fine = SHUFFLED[how]
    np.testing.assert_array_equal(out.numpy().reshape(2, 32), [where, where + 32])
    np.testing.assert_array_equal(other.numpy().reshape(2, 32), [fine, fine])


@pytest.mark.parametrize(
    ("how", "want"),
    [
        ("redux.sync.add.u32 %r1, %r0, -1;", LANE * 0 + LANE.sum()),
        ("redux.sync.min.u32 %r1, %r0, -1;", LANE * 0),
        ("redux.sync.max.s32 %r1, %r0, -1;", LANE * 0 + 31),
        ("setp.lt.u32 %p1, %r0, 3;\nvote.sync.ballot.b32 %r1, %p1, -1;", LANE * 0 + 7),
        (
            "setp.lt.u32 %p1, %r0, 3;\nvote.sync.any.pred %p2, %p1, -1;\n"
            "vote.sync.all.pred %p3, %p1, -1;\nselp.b32 %r2, 2, 0, %p2;\n"
            "selp.b32 %r1, 1, %r2, %p3;",
            LANE * 0 + 2,
        ),
    ],
)
def test_a_warp_agrees(how: str, want: np.ndarray) -> None:
    out = torch.zeros(32, dtype=torch.int32)
    played(f"{how}\n{KEPT}", out)
    np.testing.assert_array_equal(out.numpy(), want)


def test_a_loop_and_guards() -> None:
    """Threads count together, and each does what its predicate says."""
    out = torch.zeros(32, dtype=torch.int32)
    counts = played(
        f"""
        mov.b32 %r1, 0;
        mov.b32 %r2, 0;
    $L: add.s32 %r1, %r1, 3;
        add.s32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, 5;
        @%p1 bra $L;
        setp.lt.u32 %p2, %r0, 8;
        @%p2 add.s32 %r1, %r1, 100;
        @!%p2 add.s32 %r1, %r1, 200;
        {KEPT}
        """,
        out,
    )
    np.testing.assert_array_equal(out.numpy(), np.where(LANE < 8, 115, 215))
    assert counts["bra"] == 5


def test_threads_part_and_meet() -> None:
    """Each counts as far as it is told, and then waits for the others; some have ended before."""
    out = torch.zeros(32, dtype=torch.int32)
    counts = played(
        f"""
        mov.b32 %r1, 0;
        mov.b32 %r2, 0;
        setp.lt.u32 %p1, %r0, 28;
        @%p1 bra $L;
        exit;
    $L: add.s32 %r1, %r1, 3;
        add.s32 %r2, %r2, 1;
        setp.le.u32 %p1, %r2, %r0;
        @%p1 bra $L;
        setp.lt.u32 %p2, %r0, 8;
        @%p2 bra $M;
        activemask.b32 %r3;
        vote.sync.all.pred %p3, %p3, -1;
        add.s32 %r1, %r1, %r3;
        bra.uni $E;
    $M: activemask.b32 %r3;
        sub.s32 %r1, %r1, %r3;
    $E: add.s32 %r1, %r1, 1000;
        {KEPT}
        """,
        out,
    )
    said = np.where(LANE < 8, -0xFF, 0x0FFFFF00)
    want = np.where(LANE < 28, 3 * (LANE + 1) + said + 1000, 0)
    np.testing.assert_array_equal(out.numpy(), want)
    assert counts["bra"] == 30 and counts["ret"] == 1


def test_barriers_of_some() -> None:
    """Warps meet by two; each reads what the other one wrote."""
    out = torch.zeros(128, dtype=torch.int32)
    played(
        f"""
        mov.b32 %r10, global_smem;
        mad.lo.u32 %r11, %r0, 4, %r10;
        xor.b32 %r12, %r0, 32;
        mad.lo.u32 %r13, %r12, 4, %r10;
        shr.u32 %r2, %r0, 6;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r0, 64;
        st.shared.b32 [%r11], %r0;
        @%p1 bra $L;
        barrier.sync.aligned %r2, 64;
    $L: @%p1 bar.sync %r2, 64;
        ld.shared.b32 %r1, [%r13];
        {KEPT}
        """,
        out,
        threads=128,
        shared=512,
    )
    np.testing.assert_array_equal(out.numpy(), np.arange(128) ^ 32)


def test_addresses_of_any_memory() -> None:
    out = torch.zeros(32, dtype=torch.int32)
    body = """
        mov.u64 %rd2, global_smem;
        cvta.shared.u64 %rd2, %rd2;
        mad.wide.u32 %rd2, %r0, 4, %rd2;
        st.b32 [%rd2], %r0;
        ld.b32 %r1, [%rd2];
        cvta.to.shared.u64 %rd3, %rd2;
        cvt.u32.u64 %r3, %rd3;
        ld.shared.b32 %r2, [%r3];
        add.s32 %r1, %r1, %r2;
        mad.wide.u32 %rd1, %r0, 4, %rd30;
        cvta.to.global.u64 %rd4, %rd1;
        cvta.global.u64 %rd4, %rd4;
        st.b32 [%rd4], %r1;
    """
    played(body, out, shared=128)
    np.testing.assert_array_equal(out.numpy(), 2 * LANE)


def test_squares_and_sums_of_some_warps() -> None:
    """What a warp does as a whole, while another one does not."""
    out = torch.zeros(64, dtype=torch.int32)
    body = f"""
        mov.b32 %r10, global_smem;
        mad.lo.u32 %r11, %r0, 16, %r10;
        mov.b32 %r1, 0;
        st.shared.v4.b32 [%r11], {{%r1, %r1, %r1, %r1}};
        bar.sync 0;
        setp.ge.u32 %p1, %r0, 32;
        @!%p1 bra $L;
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r11], {{%r0}};
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r1}}, [%r11];
        redux.sync.add.u32 %r2, %r0, -1;
        add.u32 %r1, %r1, %r2;
    $L: {KEPT}
    """
    played(body, out, threads=64, shared=1024)
    both = np.arange(64)
    np.testing.assert_array_equal(out.numpy(), np.where(both < 32, 0, both + both[32:].sum()))


def test_programs_of_a_launch() -> None:
    """Each has its place, and a launch's values."""
    out = torch.zeros(2 * 3 * 32, dtype=torch.int32)
    body = """
        mov.u32 %r1, %ctaid.x;
        mov.u32 %r2, %ctaid.y;
        mov.u32 %r3, %nctaid.x;
        mad.lo.u32 %r4, %r2, %r3, %r1;
        mad.lo.u32 %r5, %r4, 32, %r0;
        mad.wide.u32 %rd1, %r5, 4, %rd30;
        mad.lo.u32 %r6, %r4, %r31, %r0;
        st.global.b32 [%rd1], %r6;
        """
    played(body, out, 1000, grid=(2, 3, 1))
    want = np.arange(6)[:, None] * 1000 + LANE
    np.testing.assert_array_equal(out.numpy().reshape(6, 32), want)


def test_parameters_by_address() -> None:
    """Threads may read different ones; beyond them there is nothing."""
    out = torch.zeros(32, dtype=torch.int32)
    body = """
        mov.b64 %rd1, short_param_1;
        mov.b64 %rd2, short_param_2;
        setp.lt.u32 %p1, %r0, 5;
        selp.b64 %rd3, %rd1, %rd2, %p1;
        ld.param.b32 %r1, [%rd3];
        """
    played(f"{body}\n{KEPT}", out, 70, -80)
    np.testing.assert_array_equal(out.numpy(), np.where(LANE < 5, 70, -80))
    with pytest.raises(KernelError, match="beyond the parameters"):
        played(f"{body}\nld.param.b32 %r1, [%rd3+8];", out, 70, 80)


def test_loads_and_stores_of_several() -> None:
    """Four registers in a row, a masked load, and a sign that is kept."""
    given, out = torch.arange(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    body = """
        mad.wide.u32 %rd1, %r0, 16, %rd30;
        mad.wide.u32 %rd2, %r0, 16, %rd31;
        mov.b32 %r1, 9;
        mov.b32 %r2, 9;
        mov.b32 %r3, 9;
        mov.b32 %r4, 9;
        setp.lt.u32 %p1, %r0, 4;
        @%p1 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
        st.global.v4.b32 [%rd2], {%r4, %r3, %r2, %r1};
        """
    played(body, given, out)
    want = np.where(LANE[:, None] < 4, given.numpy().reshape(32, 4)[:, ::-1], 9)
    np.testing.assert_array_equal(out.numpy().reshape(32, 4), want)
    narrow, wide = torch.full((32,), -2, dtype=torch.int8), torch.zeros(32, dtype=torch.int32)
    body = "cvt.u64.u32 %rd1, %r0;\nadd.s64 %rd1, %rd1, %rd31;\nld.global.s8 %r1, [%rd1];"
    played(f"{body}\n{KEPT}", wide, narrow)
    assert (wide == -2).all()


# ------------------------------------------------------------------- where it lies

CHANGED = {
    "add.u32 %r1, [%rd30], %r0": (0, LANE.sum(), np.cumsum(LANE) - LANE),
    "max.s32 %r1, [%rd30], %r0": (5, 31, np.maximum(5, LANE - 1)),
    "min.s32 %r1, [%rd30], %r0": (5, 0, np.where(LANE == 0, 5, 0)),
    "or.b32 %r1, [%rd30], %r0": (0, 31, np.r_[0, np.bitwise_or.accumulate(LANE)[:-1]]),
    "exch.b32 %r1, [%rd30], %r0": (77, 31, np.r_[77, LANE[:-1]]),
    "cas.b32 %r1, [%rd30], 3, %r0": (3, 0, np.r_[3, LANE[1:] * 0]),
}


@pytest.mark.parametrize("how", CHANGED)
def test_atomic(how: str) -> None:
    """One thread after another; each gets what was there before its turn."""
    start, end, before = CHANGED[how]
    place, out = torch.tensor([start, 0], dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    played(f"atom.global.gpu.acq_rel.{how};\n{KEPT.replace('30', '31')}", place, out)
    assert place.tolist() == [end, 0]
    np.testing.assert_array_equal(out.numpy(), before)


def test_sums_where_they_lie() -> None:
    """Without an answer: many threads, one number; pairs of bfloat16; shared memory."""
    place = torch.tensor([1.0, 2.0])
    played("cvt.rn.f32.u32 %r1, %r0;\nred.global.gpu.add.f32 [%rd30+4], %r1;", place)
    assert place.tolist() == [1.0, 2.0 + LANE.sum()]
    place = torch.tensor([1, 2], dtype=torch.bfloat16)
    one = pair(bf16(0.5), bf16(-1)).item()
    played(f"mov.b32 %r1, {one};\nred.global.add.noftz.bf16x2 [%rd30], %r1;", place)
    assert place.tolist() == [17.0, -30.0]
    out = torch.zeros(32, dtype=torch.int32)
    body = """
        setp.eq.u32 %p1, %r0, 0;
        mov.b32 %r2, global_smem;
        @%p1 st.shared.b32 [%r2], %r0;
        bar.sync 0;
        red.shared.add.u32 [%r2], %r0;
        bar.sync 0;
        ld.shared.b32 %r1, [%r2];
        """
    played(f"{body}\n{KEPT}", out, shared=16)
    assert (out == LANE.sum()).all()
