"""What is read off machine code."""

import pytest

from benchmarks.compiled import loops, lost, written

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
