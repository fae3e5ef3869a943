"""Each fault that the emulator is there to find is found, and its mended twin passes."""

from typing import NamedTuple

import pytest
import torch

from tests.tools.ptx.texts import played
from tools.ptx.faults import KernelError

ADDRESS = "mov.b32 %r10, global_smem;\nmad.lo.u32 %r11, %r0, 4, %r10;"
OTHER = "xor.b32 %r12, %r0, 32;\nmad.lo.u32 %r13, %r12, 4, %r10;"  # of the other warp's thread
WRITE = "st.shared.b32 [%r11], %r0;"
READ = "ld.shared.b32 %r14, [%r13];"
OWN = "ld.shared.b32 %r15, [%r11];"
MEET = "bar.sync 0;"
ANY = "cvt.u64.u32 %rd1, %r11;\ncvta.shared.u64 %rd1, %rd1;"  # an address of any memory
FIRST = "setp.lt.u32 %p1, %r0, 16;"
COPY = "mad.wide.u32 %rd1, %r0, 4, %rd30;\ncp.async.ca.shared.global [%r11], [%rd1], 4;"
CLOSE, ARRIVE = "cp.async.commit_group;", "cp.async.wait_group 0;"
FENCE = "fence.proxy.async.shared::cta;"
FILL = """
    mov.b32 %r10, global_smem;
    mad.lo.u32 %r11, %r0, 16, %r10;
    mov.b32 %r1, 0;
    st.shared.v4.b32 [%r11], {%r1, %r1, %r1, %r1};
    st.shared.v4.b32 [%r11+2048], {%r1, %r1, %r1, %r1};
"""
COPIED = FILL.replace("st.shared.v4.b32 [%r11], {%r1, %r1, %r1, %r1};", "") + (
    "mad.wide.u32 %rd1, %r0, 16, %rd30;\ncp.async.cg.shared.global [%r11], [%rd1], 16;\n"
)
PRODUCT = """
    cvt.u64.u32 %rd2, %r10;
    shr.u64 %rd2, %rd2, 4;
    add.s64 %rd3, %rd2, 0x1000080000;
    add.s64 %rd4, %rd3, 128;
    mov.pred %p2, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16
        {%r2, %r3, %r4, %r5}, %rd3, %rd4, %p2, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
"""
DONE = "wgmma.wait_group.sync.aligned 0;"
AGAIN = "st.shared.b32 [%r11], %r1;"


class Stop(NamedTuple):
    """A program that must stop, why, and how it is mended."""

    wrong: str
    why: str
    right: str
    threads: int = 64
    shared: int = 256


def lines(*parts: str) -> str:
    return "\n".join(parts)


def product(*parts: str) -> str:
    return lines(FILL, *parts)


STOPS = {
    # ------------------------------------------------------------------- tensors
    "a read beyond a tensor": Stop(
        "mad.wide.u32 %rd1, %r0, 8, %rd30;\nld.global.b64 %rd2, [%rd1+8];",
        "thread 63: 8 bytes at .* lie in no tensor",
        "mad.wide.u32 %rd1, %r0, 8, %rd30;\nld.global.b64 %rd2, [%rd1];",
    ),
    "a write ahead of a tensor": Stop(
        "mad.wide.u32 %rd1, %r0, 4, %rd30;\nst.global.b32 [%rd1+-4], %r0;",
        "thread 0: 4 bytes at .* lie in no tensor",
        "mad.wide.u32 %rd1, %r0, 4, %rd30;\nst.global.b32 [%rd1+4], %r0;",
    ),
    "a read across the end of a tensor": Stop(
        "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd30+496];\nld.global.b64 %rd1, [%rd30+508];",
        "thread 0: 8 bytes at .* lie in no tensor",
        "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd30+496];\nld.global.b32 %r1, [%rd30+508];",
    ),
    "an atomic sum beyond a tensor": Stop(
        "red.global.add.f32 [%rd30+512], %r0;",
        "thread 0: 4 bytes at .* lie in no tensor",
        "red.global.add.f32 [%rd30+508], %r0;",
    ),
    "a copy from beyond a tensor": Stop(
        lines(ADDRESS, COPY.replace("[%rd1]", "[%rd1+300]"), CLOSE, ARRIVE),
        "4 bytes at .* lie in no tensor",
        lines(ADDRESS, COPY.replace("[%rd1]", "[%rd1+256]"), CLOSE, ARRIVE),
    ),
    "a tensor, across words": Stop(
        "ld.global.b32 %r1, [%rd30+2];",
        "4 bytes at an address that isn't a multiple of that",
        "ld.global.b16 %rs1, [%rd30+2];",
    ),
    # -------------------------------------------------------------- shared memory
    "beyond shared memory": Stop(
        lines(ADDRESS, "st.shared.b32 [%r11+4], %r0;"),
        "shared memory: byte 256 of 256",
        lines(ADDRESS, WRITE),
    ),
    "ahead of shared memory": Stop(
        lines(ADDRESS, "st.shared.b32 [%r11+-4], %r0;"),
        "shared memory: byte -4 of 256",
        lines(ADDRESS, WRITE),
    ),
    "squares beyond shared memory": Stop(
        lines(ADDRESS, WRITE, MEET, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r10+256];"),
        "shared memory: byte 256 of 256",
        lines(ADDRESS, WRITE, MEET, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r10+240];"),
    ),
    "an atomic sum beyond shared memory": Stop(
        lines(ADDRESS, WRITE, MEET, "red.shared.add.u32 [%r10+256], %r0;"),
        "shared memory: byte 256 of 256",
        lines(ADDRESS, WRITE, MEET, "red.shared.add.u32 [%r10+252], %r0;"),
    ),
    "shared memory, across words": Stop(
        lines(ADDRESS, "st.shared.b32 [%r10+2], 0;"),
        "shared memory: 4 bytes at an address that isn't a multiple of that",
        lines(ADDRESS, "st.shared.b16 [%r10+2], 0;"),
    ),
    "what nobody wrote": Stop(
        lines(ADDRESS, FIRST, f"@%p1 {WRITE}", "ld.shared.b32 %r1, [%r11];"),
        "shared memory: read what nobody wrote",
        lines(ADDRESS, FIRST, f"@%p1 {WRITE}", "@%p1 ld.shared.b32 %r1, [%r11];"),
    ),
    "half of what nobody wrote": Stop(
        lines(ADDRESS, "st.shared.b16 [%r11], 0;", "ld.shared.b32 %r1, [%r11];"),
        "shared memory: read what nobody wrote",
        lines(ADDRESS, "st.shared.b16 [%r11], 0;", "ld.shared.b16 %rs1, [%r11];"),
    ),
    "squares that nobody wrote": Stop(
        lines(ADDRESS, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r10];"),
        "shared memory: read what nobody wrote",
        lines(ADDRESS, WRITE, MEET, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r10];"),
    ),
    "a sum on top of what nobody wrote": Stop(
        lines(ADDRESS, "red.shared.add.u32 [%r11], %r0;"),
        "shared memory: read what nobody wrote",
        lines(ADDRESS, WRITE, "red.shared.add.u32 [%r11], %r0;"),
    ),
    "two threads, two numbers": Stop(
        lines(ADDRESS, "st.shared.b32 [%r10], %r0;"),
        "shared memory: written by two threads at once",
        lines(ADDRESS, "st.shared.b32 [%r10], 7;"),
        threads=32,
    ),
    # ------------------------------------------------------------- between warps
    "read what another warp wrote": Stop(
        lines(ADDRESS, OTHER, WRITE, READ),
        "shared memory: read what another warp wrote, with no barrier between",
        lines(ADDRESS, OTHER, WRITE, MEET, READ),
    ),
    "a barrier of a warp is none": Stop(
        lines(ADDRESS, OTHER, WRITE, "bar.warp.sync -1;", READ),
        "shared memory: read what another warp wrote, with no barrier between",
        lines(ADDRESS, OTHER, WRITE, "bar.warp.sync -1;", READ.replace("13", "11")),
    ),
    "overwritten what another warp read": Stop(
        lines(ADDRESS, OTHER, WRITE, MEET, READ, WRITE),
        "shared memory: overwritten after another warp's read, with no barrier between",
        lines(ADDRESS, OTHER, WRITE, MEET, READ, MEET, WRITE),
    ),
    "overwritten what both warps read": Stop(
        lines(ADDRESS, OTHER, WRITE, MEET, READ, OWN, WRITE),
        "shared memory: overwritten after another warp's read, with no barrier between",
        lines(ADDRESS, OTHER, WRITE, MEET, READ, MEET, OWN, WRITE),
    ),
    "overwritten what another warp wrote": Stop(
        lines(ADDRESS, OTHER, WRITE, "st.shared.b32 [%r13], %r0;"),
        "shared memory: written by two warps, with no barrier between",
        lines(ADDRESS, OTHER, WRITE, MEET, "st.shared.b32 [%r13], %r0;"),
    ),
    # -------------------------------------------------------------------- copies
    "read while a copy is under way": Stop(
        lines(ADDRESS, COPY, CLOSE, "ld.shared.b32 %r1, [%r11];", ARRIVE),
        "shared memory: read while copies are under way",
        lines(ADDRESS, COPY, CLOSE, ARRIVE, "ld.shared.b32 %r1, [%r11];"),
    ),
    "waited for another copy": Stop(
        lines(ADDRESS, COPY, CLOSE, "cp.async.wait_group 1;", "ld.shared.b32 %r1, [%r11];", ARRIVE),
        "shared memory: read while copies are under way",
        lines(
            *(ADDRESS, COPY, CLOSE, CLOSE, "cp.async.wait_group 1;"),
            *("ld.shared.b32 %r1, [%r11];", ARRIVE),
        ),
    ),
    "another warp's copy": Stop(
        lines(ADDRESS, OTHER, COPY, CLOSE, ARRIVE, READ),
        "shared memory: read what another warp wrote, with no barrier between",
        lines(ADDRESS, OTHER, COPY, CLOSE, ARRIVE, MEET, READ),
    ),
    "overwritten while a copy is under way": Stop(
        lines(ADDRESS, COPY, CLOSE, WRITE, ARRIVE),
        "shared memory: written while products or copies are under way",
        lines(ADDRESS, COPY, CLOSE, ARRIVE, WRITE),
    ),
    "a copy to where another warp reads": Stop(
        lines(ADDRESS, OTHER, WRITE, MEET, READ, COPY, CLOSE, ARRIVE),
        "shared memory: overwritten after another warp's read, with no barrier between",
        lines(ADDRESS, OTHER, WRITE, MEET, READ, MEET, COPY, CLOSE, ARRIVE),
    ),
    "ends with copies under way": Stop(
        lines(ADDRESS, COPY, CLOSE),
        "ends with products or copies under way",
        lines(ADDRESS, COPY, CLOSE, ARRIVE),
    ),
    "a copy of a part": Stop(
        lines(ADDRESS, COPY.replace(", 4;", ", 4, 2;"), CLOSE, ARRIVE),
        "a copy of a part",
        lines(ADDRESS, COPY.replace(", 4;", ", 4, 0;"), CLOSE, ARRIVE),
    ),
    # ------------------------------------------------------------------ products
    "a product without a fence": Stop(
        product(MEET, PRODUCT, DONE),
        "shared memory: a product reads what no fence has handed over",
        product(FENCE, MEET, PRODUCT, DONE),
    ),
    "a product of what was written after the fence": Stop(
        product(FENCE, AGAIN, MEET, PRODUCT, DONE),
        "shared memory: a product reads what no fence has handed over",
        product(FENCE, AGAIN, FENCE, MEET, PRODUCT, DONE),
    ),
    "a product without a barrier": Stop(
        product(FENCE, PRODUCT, DONE),
        "shared memory: a product reads what was written with no barrier between",
        product(FENCE, MEET, PRODUCT, DONE),
    ),
    "a product while copies are under way": Stop(
        lines(COPIED, FENCE, CLOSE, MEET, PRODUCT, DONE, ARRIVE),
        "shared memory: a product reads while copies are under way",
        lines(COPIED, FENCE, CLOSE, ARRIVE, MEET, PRODUCT, DONE),
    ),
    "overwritten while a product reads": Stop(
        product(FENCE, MEET, PRODUCT, AGAIN, DONE),
        "shared memory: written while products or copies are under way",
        product(FENCE, MEET, PRODUCT, DONE, AGAIN),
    ),
    "waited for an older product": Stop(
        product(FENCE, MEET, PRODUCT, DONE.replace("0;", "1;"), AGAIN, DONE),
        "shared memory: written while products or copies are under way",
        product(FENCE, MEET, PRODUCT, DONE, AGAIN),
    ),
    "ends with a product under way": Stop(
        product(FENCE, MEET, PRODUCT),
        "ends with products or copies under way",
        product(FENCE, MEET, PRODUCT, DONE),
    ),
    "a product of what nobody wrote": Stop(
        lines(FILL.replace("[%r11+2048]", "[%r11]"), FENCE, MEET, PRODUCT, DONE),
        "shared memory: read what nobody wrote",
        product(FENCE, MEET, PRODUCT, DONE),
    ),
    "a product beyond shared memory": Stop(
        product(FENCE, MEET, PRODUCT.replace("%rd3, 128", "%rd3, 256"), DONE),
        "shared memory: a product reads beyond it",
        product(FENCE, MEET, PRODUCT.replace("%rd3, 128", "%rd3, 240"), DONE),
    ),
    "threads that name different tiles": Stop(
        product(FENCE, MEET, PRODUCT.replace("%rd2, %r10;", "%rd2, %r11;"), DONE),
        "threads of a group name different tiles",
        product(FENCE, MEET, PRODUCT, DONE),
    ),
    "a product of some threads": Stop(
        product(FENCE, MEET, FIRST, PRODUCT.replace("wgmma.mma", "@%p1 wgmma.mma"), DONE),
        "an instruction of whole warps that some threads take",
        product(FENCE, MEET, FIRST, PRODUCT, DONE),
    ),
    # ------------------------------------------------------------------- the way
    "a barrier where threads have parted": Stop(
        lines(FIRST, "@%p1 bra $L;", "bar.sync 0;\n$L:"),
        r"a barrier that some threads don't reach\n.*bar\.sync 0",
        lines(FIRST, "@%p1 bra $L;", "bar.sync 0;", "bra $M;\n$L:", "bar.sync 0;\n$M:"),
    ),
    "a barrier of more threads": Stop(
        "bar.sync 1, 96;",
        "a barrier that some threads don't reach",
        "bar.sync 1, 64;",
    ),
    "a barrier of fewer threads": Stop(
        "bar.sync 1, 32;",
        "a barrier for 32 threads, which more of them reach",
        lines(FIRST, "@%p1 bra $L;", "bar.sync 1, 48;\n$L:"),
    ),
    "some threads end": Stop(
        lines(FIRST, "@%p1 ret;", MEET),
        "a barrier that some threads don't reach",
        lines(MEET, FIRST, "@%p1 exit;", "add.u32 %r1, %r0, 1;"),
    ),
    "an address of any memory, for some": Stop(
        lines(ADDRESS, WRITE, ANY, FIRST, "@%p1 mov.b64 %rd1, %rd30;", "ld.b32 %r1, [%rd1];"),
        "an address of shared memory for some threads, not for others",
        lines(ADDRESS, WRITE, ANY, FIRST, "@%p1 mov.b64 %rd1, %rd30;", "@%p1 ld.b32 %r1, [%rd1];"),
    ),
    "a wide sum between": Stop(
        "red.global.add.v4.f32 [%rd30+8], {%r1, %r2, %r3, %r4};",
        "a sum at an address that isn't a multiple of its bytes",
        "red.global.add.v4.f32 [%rd30+16], {%r1, %r2, %r3, %r4};",
    ),
    "a barrier for some": Stop(
        lines(FIRST, "@%p1 bar.sync 0;"),
        "a barrier that some threads don't reach",
        lines("setp.lt.u32 %p1, %r0, 64;", "@%p1 bar.sync 0;"),
    ),
    "asked, and not there": Stop(
        lines(FIRST, "@%p1 shfl.sync.bfly.b32 %r1, %r0, 16, 31, -1;"),
        "a thread asks one that doesn't take part",
        lines(FIRST, "@%p1 shfl.sync.bfly.b32 %r1, %r0, 8, 31, -1;"),
    ),
    "a warp's sum of some": Stop(
        lines(FIRST, "@%p1 redux.sync.add.u32 %r1, %r0, -1;"),
        "an instruction of whole warps that some threads take",
        "redux.sync.add.u32 %r1, %r0, -1;",
    ),
    "a trap": Stop(
        lines(FIRST, "@%p1 trap;"),
        "the program stops itself",
        lines("setp.gt.u32 %p1, %r0, 64;", "@%p1 trap;"),
    ),
}


@pytest.mark.parametrize("name", STOPS)
def test_stops(name: str) -> None:
    case = STOPS[name]
    given, large = torch.zeros(128), "wgmma" in case.right
    size = {"threads": 128, "shared": 4096} if large else {}
    size = {"threads": case.threads, "shared": case.shared, **size}
    data = torch.zeros(4096, dtype=torch.uint8) if large else given
    with pytest.raises(KernelError, match=case.why):
        played(case.wrong, data, **size)
    assert played(case.right, data, **size)["ret"] <= 1


def test_each_program_begins_anew() -> None:
    """The next one finds neither what the last one wrote nor what it had in registers."""
    out = torch.zeros(2, dtype=torch.int32)
    body = """
        mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 mov.b32 %r2, 7;
        mad.wide.u32 %rd1, %r1, 4, %rd30;
        st.global.b32 [%rd1], %r2;
    """
    played(body, out, grid=(2, 1, 1))
    assert out.tolist() == [7, 0x5B5B5B5B]
    body = f"mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p1, %r1, 0;\n{ADDRESS}\n@%p1 {WRITE}\n"
    with pytest.raises(KernelError, match=r"read what nobody wrote\n +in short\(1, 0, 0\)"):
        played(body + "ld.shared.b32 %r1, [%r11];", out, shared=256, grid=(2, 1, 1))


def test_what_the_emulator_does_not_know() -> None:
    """It says so before anything runs."""
    for wrong, why in {
        "bmsk.clamp.b32 %r1, %r2, %r3;": "no instruction bmsk.clamp.b32",
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%r1}, %rd1, %rd2, 1, 1, 1;": (
            "no product of this type"
        ),
        "cp.async.bulk.shared.global [%r1], [%rd1], 16;": "no such copies",
        "add.s64 %rd1, %r1, %rd2;": "too narrow",
        "mov.b32 %r1, %somewhere;": "unknown",
    }.items():
        with pytest.raises(ValueError, match=why):
            played(wrong)
