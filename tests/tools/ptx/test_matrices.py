"""Instructions on matrices: who holds which numbers is written here as the manual of PTX has it."""

import pytest
import torch

from tests.tools.ptx.texts import played

KEPT = "mad.wide.u32 %rd1, %r0, 4, %rd30;"
LANES = [(lane // 4, lane % 4) for lane in range(32)]
KINDS = {"bf16": torch.bfloat16, "f16": torch.float16}


def whole(*shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers, of which all products and sums are exact."""
    return torch.randint(-4, 5, shape).to(kind)


# ------------------------------------------------------- squares of 8 by 8 numbers

FILLED = """
    mov.b32 %r10, global_smem;
    mad.lo.u32 %r11, %r0, 16, %r10;
    mad.wide.u32 %rd2, %r0, 16, %rd31;
    ld.global.v4.b32 {{%r12, %r13, %r14, %r15}}, [%rd2];
    st.shared.v4.b32 [%r11], {{%r12, %r13, %r14, %r15}};
    bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{%r1, %r2, %r3, %r4}}, [%r11];
    mad.wide.u32 %rd1, %r0, 16, %rd30;
    st.global.v4.b32 [%rd1], {{%r1, %r2, %r3, %r4}};
"""


@pytest.mark.parametrize("turned", [False, True])
def test_squares_are_loaded(turned: bool) -> None:
    """Lane 4 i + j gets of each square the numbers 2 j and 2 j + 1 of row i, or of column i."""
    squares = torch.arange(4 * 64, dtype=torch.int16).view(4, 8, 8)
    out = torch.zeros(32, 4, 2, dtype=torch.int16)
    played(FILLED.format(turned=".trans" * turned), out, squares, shared=512)
    for lane, (i, j) in enumerate(LANES):
        for square in range(4):
            for k in range(2):
                row, column = (2 * j + k, i) if turned else (i, 2 * j + k)
                assert out[lane, square, k] == squares[square, row, column]


@pytest.mark.parametrize("turned", [False, True])
def test_squares_are_stored(turned: bool) -> None:
    """The other way around, of two warps with squares of their own."""
    given = torch.arange(2 * 32 * 2 * 2, dtype=torch.int16).view(2, 32, 2, 2)
    out = torch.zeros(2, 2, 8, 8, dtype=torch.int16)
    body = f"""
        mad.wide.u32 %rd1, %r0, 8, %rd31;
        ld.global.v2.b32 {{%r1, %r2}}, [%rd1];
        mov.u32 %r3, %laneid;
        mov.u32 %r4, %warpid;
        mov.b32 %r5, global_smem;
        mad.lo.u32 %r6, %r4, 256, %r5;
        mad.lo.u32 %r7, %r3, 16, %r6;
        stmatrix.sync.aligned.m8n8.x2{".trans" * turned}.shared.b16 [%r7], {{%r1, %r2}};
        bar.warp.sync -1;
        mad.lo.u32 %r8, %r3, 8, %r6;
        ld.shared.v2.b32 {{%r10, %r11}}, [%r8];
        mad.wide.u32 %rd2, %r0, 8, %rd30;
        st.global.v2.b32 [%rd2], {{%r10, %r11}};
    """
    played(body, out, given, threads=64, shared=512 + 512)
    for warp in range(2):
        for lane, (i, j) in enumerate(LANES):
            for square in range(2):
                for k in range(2):
                    row, column = (2 * j + k, i) if turned else (i, 2 * j + k)
                    assert out[warp, square, row, column] == given[warp, lane, square, k]


# --------------------------------------------------------------- products of a warp


def left_of_16(x: torch.Tensor) -> torch.Tensor:
    """Of a (16, 16) its eight numbers of each lane."""
    place = lambda i, g, t: (g + 8 * (i in (2, 3, 6, 7)), 2 * t + i % 2 + 8 * (i >= 4))
    return torch.stack([torch.stack([x[place(i, *at)] for i in range(8)]) for at in LANES])


def right_of_16(x: torch.Tensor) -> torch.Tensor:
    """Of a (16, 8) its four numbers of each lane."""
    place = lambda i, g, t: (2 * t + i % 2 + 8 * (i >= 2), g)
    return torch.stack([torch.stack([x[place(i, *at)] for i in range(4)]) for at in LANES])


def sums(x: torch.Tensor) -> torch.Tensor:
    """Of a (16, 8) the four sums of each lane."""
    place = lambda i, g, t: (g + 8 * (i >= 2), 2 * t + i % 2)
    return torch.stack([torch.stack([x[place(i, *at)] for i in range(4)]) for at in LANES])


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_of_a_warp(kind: str) -> None:
    """With sums that it begins from."""
    a, b, c = whole(16, 16), whole(16, 8), whole(16, 8)
    left, right = (x.to(KINDS[kind]).contiguous() for x in (left_of_16(a), right_of_16(b)))
    out = torch.zeros(32, 4)
    body = f"""
        mad.wide.u32 %rd1, %r0, 16, %rd31;
        ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%rd1];
        mad.wide.u32 %rd2, %r0, 8, %rd32;
        ld.global.v2.b32 {{%r5, %r6}}, [%rd2];
        mad.wide.u32 %rd3, %r0, 16, %rd33;
        ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd3];
        mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32
            {{%r10, %r11, %r12, %r13}}, {{%r1, %r2, %r3, %r4}}, {{%r5, %r6}},
            {{%r10, %r11, %r12, %r13}};
        mad.wide.u32 %rd4, %r0, 16, %rd30;
        st.global.v4.b32 [%rd4], {{%r10, %r11, %r12, %r13}};
    """
    played(body, out, left, right, sums(c).contiguous())
    assert torch.equal(out, sums(a @ b + c))


def test_a_product_of_a_warp_in_tf32() -> None:
    a, b = whole(16, 8), whole(8, 8)
    left = torch.stack([a[[g, g + 8, g, g + 8], [t, t, t + 4, t + 4]] for g, t in LANES])
    right = torch.stack([b[[t, t + 4], g] for g, t in LANES])
    out = torch.zeros(32, 4)
    body = """
        mad.wide.u32 %rd1, %r0, 16, %rd31;
        ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
        mad.wide.u32 %rd2, %r0, 8, %rd32;
        ld.global.v2.b32 {%r5, %r6}, [%rd2];
        mov.b32 %r7, 0f00000000;
        mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
            {%r10, %r11, %r12, %r13}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7, %r7, %r7, %r7};
        mad.wide.u32 %rd4, %r0, 16, %rd30;
        st.global.v4.b32 [%rd4], {%r10, %r11, %r12, %r13};
    """
    played(body, out, left, right)
    assert torch.equal(out, sums(a @ b))


# ---------------------------------------------------- a product of a group of warps


def blocks(x: torch.Tensor) -> torch.Tensor:
    """A (rows, 16) as it lies without swizzling: blocks of 8 rows by 16 bytes, those of a row
    128 bytes apart, those of a column 256."""
    return x.view(-1, 8, 2, 8).transpose(1, 2).contiguous()


def rows_of(x: torch.Tensor, bytes: int) -> torch.Tensor:
    """A (rows, columns) whose rows have so many bytes, with 16 bytes changing places by the row."""
    parts = x.view(torch.int16).view(len(x), bytes // 16, 8)
    period = 128 // bytes  # rows in 128 bytes
    swapped = torch.empty_like(parts)
    for row in range(len(x)):
        for part in range(bytes // 16):
            swapped[row, part ^ (row // period % (bytes // 16))] = parts[row, part]
    return swapped


def descriptor(at: int, lead: int, stride: int, swizzle: int) -> int:
    return at >> 4 | lead >> 4 << 16 | stride >> 4 << 32 | swizzle << 62


GROUPED = """
    mov.b32 %r10, global_smem;
    mad.lo.u32 %r11, %r0, 16, %r10;
    mad.wide.u32 %rd2, %r0, 16, %rd31;
    mov.b32 %r20, 0;
$COPY:
    ld.global.v4.b32 {{%r12, %r13, %r14, %r15}}, [%rd2];
    st.shared.v4.b32 [%r11], {{%r12, %r13, %r14, %r15}};
    add.s64 %rd2, %rd2, 2048;
    add.u32 %r11, %r11, 2048;
    add.u32 %r20, %r20, 2048;
    setp.lt.u32 %p1, %r20, {size};
    @%p1 bra $COPY;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    cvt.u64.u32 %rd3, %r10;
    shr.u64 %rd3, %rd3, 4;
    add.s64 %rd4, %rd3, {left};
    add.s64 %rd5, %rd3, {right};
    mov.b32 %r1, 0f40A00000;
    mov.b32 %r2, %r1;
    mov.b32 %r3, %r1;
    mov.b32 %r4, %r1;
    mov.pred %p2, {keep};
    {before}
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.{kind}.{kind}
        {{%r1, %r2, %r3, %r4}}, {first}, %rd5, %p2, {signs}, {turns};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mad.wide.u32 %rd6, %r0, 16, %rd30;
    st.global.v4.b32 [%rd6], {{%r1, %r2, %r3, %r4}};
"""


def grouped(
    memory: torch.Tensor,
    *,
    left=0,
    right=0,
    kind="bf16",
    keep=0,
    signs="1, 1",
    held=None,
    turns=None,
) -> torch.Tensor:
    """The (64, 8) product of what lies in shared memory."""
    room = -(-memory.nbytes // 2048) * 2048
    whole = torch.zeros(room, dtype=torch.uint8)
    whole[: memory.nbytes] = memory.view(-1).view(torch.uint8)
    out = torch.zeros(128, 4)
    before, given = "", [out, whole]
    if held is not None:
        before = """
            mad.wide.u32 %rd7, %r0, 16, %rd32;
            ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd7];"""
        given.append(held)
    body = GROUPED.format(
        **{"size": room, "left": left, "right": right, "kind": kind, "keep": keep, "signs": signs},
        first="%rd4" if held is None else "{%r5, %r6, %r7, %r8}",
        **{"before": before, "turns": turns or ("0, 0" if held is None else "0")},
    )
    played(body, *given, threads=128, shared=room)
    found = torch.empty(64, 8)
    for thread in range(128):
        g, t = LANES[thread % 32]
        for i in range(4):
            found[16 * (thread // 32) + g + 8 * (i >= 2), 2 * t + i % 2] = out[thread, i]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_of_a_group(kind: str) -> None:
    """Without swizzling; on top of what there was; with the other sign."""
    a, b = whole(64, 16, kind=KINDS[kind]), whole(8, 16, kind=KINDS[kind])
    memory = torch.cat([blocks(a).view(-1), blocks(b).view(-1)])
    where = {"left": descriptor(0, 128, 256, 0), "right": descriptor(2048, 128, 256, 0)}
    want = a.float() @ b.float().T
    assert torch.equal(grouped(memory, kind=kind, **where), want)
    assert torch.equal(grouped(memory, kind=kind, keep=1, **where), want + 5)
    assert torch.equal(grouped(memory, kind=kind, signs="-1, 1", **where), -want)
    assert torch.equal(grouped(memory, kind=kind, signs="1, -1", **where), -want)


@pytest.mark.parametrize(("bytes", "swizzle"), [(32, 3), (64, 2), (128, 1)])
def test_swizzled(bytes: int, swizzle: int) -> None:
    """The first 16 columns of rows of 32, 64 and 128 bytes, and the next ones."""
    a, b = (whole(n, bytes // 2, kind=torch.bfloat16) for n in (64, 8))
    memory = torch.cat([rows_of(a, bytes).view(-1), rows_of(b, bytes).view(-1)])
    for start in range(0, bytes, 32):
        left = descriptor(start, 16, 8 * bytes, swizzle)
        right = descriptor(64 * bytes + start, 16, 8 * bytes, swizzle)
        found = grouped(memory, left=signed(left), right=signed(right))
        used = slice(start // 2, start // 2 + 16)
        assert torch.equal(found, a[:, used].float() @ b[:, used].float().T)


def signed(bits: int) -> int:
    return bits - (1 << 64) * (bits >> 63)


def test_turned() -> None:
    """Numbers of the wide side lie next to one another: rows of 128 bytes, one for each depth."""
    a, b = whole(64, 16, kind=torch.bfloat16), whole(8, 16, kind=torch.bfloat16)
    memory = torch.cat(
        [rows_of(a.T.contiguous(), 128).view(-1), blocks(b).view(torch.int16).view(-1)]
    )
    left, right = descriptor(0, 8192, 1024, 1), descriptor(2048, 128, 256, 0)
    found = grouped(memory, left=signed(left), right=right, turns="1, 0")
    assert torch.equal(found, a.float() @ b.float().T)


def test_turned_without_swizzling() -> None:
    """Blocks of 8 depths by 8 numbers of the wide side."""
    a, b = whole(64, 16, kind=torch.bfloat16), whole(8, 16, kind=torch.bfloat16)
    turned = a.view(8, 8, 2, 8).permute(0, 2, 3, 1).contiguous()  # block of rows, of depths; k, m
    memory = torch.cat([turned.view(-1), blocks(b).view(-1)])
    left, right = descriptor(0, 128, 256, 0), descriptor(2048, 128, 256, 0)
    found = grouped(memory, left=left, right=right, turns="1, 0")
    assert torch.equal(found, a.float() @ b.float().T)


def test_a_left_side_in_registers() -> None:
    a, b = whole(64, 16, kind=torch.bfloat16), whole(8, 16, kind=torch.bfloat16)
    held = torch.cat([left_of_16(a[16 * warp : 16 * warp + 16]) for warp in range(4)]).contiguous()
    found = grouped(blocks(b), right=descriptor(0, 128, 256, 0), held=held)
    assert torch.equal(found, a.float() @ b.float().T)
