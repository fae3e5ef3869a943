"""What is read off machine code."""

import pytest

from benchmarks.compiled import loops, lost, unset, written

CODE = """
        /*0010*/                   F2FP.BF16.F32.PACK_AB R60, R57, R56 ;     /* 0x1 */
        /*0020*/                   HGMMA.64x64x16.F32.BF16 R24, R60, gdesc[UR24], RZ, !UPT ;
        /*0030*/                   {after} ;
        /*0040*/                   HGMMA.64x64x16.F32.BF16 R88, gdesc[UR16], R88, gsb0 ;
        /*0050*/               @P2 BRA 0x{begin} ;
        /*0060*/                   STG.E.128 desc[UR4][R60.64], R60 ;
"""


@pytest.mark.parametrize(
    ("after", "begin", "gone"),
    [
        ("FADD R64, R60, R24", "20", []),
        ("FADD R61, R60, R24", "20", ["R61"]),
        ("FADD R60, R60, R24", "20", ["R60"]),
        ("FADD R60, R60, R24", "10", []),  # made anew in each turn
        ("LDS.128 R60, [R2]", "20", ["R60", "R61", "R62", "R63"]),
        ("STS [R60+0x10], R24", "20", []),
        ("HGMMA.64x64x16.F32.BF16 R56, gdesc[UR8], RZ", "20", ["R60", "R61", "R62", "R63"]),
        ("HGMMA.64x8x16.F32.BF16 R56, gdesc[UR8], RZ", "20", []),
    ],
)
def test_registers_that_a_loop_gives_away_are_told(after: str, begin: str, gone: list[str]) -> None:
    found = lost(CODE.format(after=after, begin=begin))
    assert [line.split()[0] for line in found] == gone
    assert all("HGMMA.64x64x16.F32.BF16 at 0x20" in line for line in found)


def test_what_an_instruction_writes() -> None:
    assert written("CS2R", " R60, SRZ") == range(60, 62)
    assert written("IMAD.WIDE.U32", " R10, R10, UR60, RZ") == range(10, 12)
    assert written("LDSM.16.MT88.4", " R8, [R2]") == range(8, 12)
    assert written("UIMAD", " UR60, UR7, UR9, UR60") == range(0)


def test_an_inner_loop_has_its_instructions() -> None:
    (loop,) = loops(CODE.format(after="FADD R64, R60, R24", begin="20"))
    assert len(loop) == 4 and loop[0].startswith("HGMMA")


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        ("UIADD3 UR4, UP0, UR5, 0x40, URZ", ["UR5"]),
        ("UIADD3 UR4, UP0, UR6, 0x40, URZ", []),
        ("UIADD3.X UR4, UR7, -0x7fffffe0, URZ, UP0, !UPT", []),  # of a pair
        ("FADD R3, R3, R2.reuse", ["R3"]),
        ("FADD R2, R2, RZ", []),
        ("PRMT R3, RZ, 0x7610, R3", []),  # one half is kept, whatever it is
        ("@P1 LDG.E.U16 R3, desc[UR6][R2.64+0x2]", []),
        ("STG.E desc[UR6][R2.64], R9", ["R9"]),
        ("STL [R1+0x8], R9", []),
        ("HGMMA.64x8x16.F32 R24, R2, gdesc[UR40], RZ, !UPT", []),  # as UR42 and UR43
        ("REDUX.MAX.S32 UR9, R2", []),
    ],
)
def test_registers_that_nobody_writes_are_told(line: str, gone: list[str]) -> None:
    lines = [
        "ULDC.64 UR6, c[0x0][0x208]",
        "S2R R2, SR_TID.X",
        "LDC R1, c[0x0][0x28]",
        line,
        "FADD R2, R2, R2",
    ]
    sass = "\n".join(f"        /*{16 * i:04x}*/  {x} ;  /* 0x1 */" for i, x in enumerate(lines))
    assert [found.split()[0] for found in unset(sass)] == gone
