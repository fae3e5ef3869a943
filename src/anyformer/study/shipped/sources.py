"""What the sources of the shipped studies measured, as numbers, to stand beside ours.

TSBpt: bairesearch/TSBNLPpt, graph/recursiveLayers/trainingResults (one run, one seed and one rate
for every number; losses of masked tokens average unmasked tokens and padding in, so that they
compare with each other alone). Narang et al. 2021: arXiv:2102.11972, table 1 (T5 of 223M parameters
on C4; early: after 65,536 steps, final: after 524,288).
"""

from __future__ import annotations

from dataclasses import dataclass

TSBPT = "TSBpt (bairesearch/TSBNLPpt, recursiveLayers)"
NARANG = "Narang et al. 2021 (arXiv:2102.11972)"


@dataclass(frozen=True)
class Told:
    """A number of a source: a variant by our name, the samples it was trained on, its scores."""

    variant: str
    samples: float  # millions
    accuracy: float
    loss: float | None = None


@dataclass(frozen=True)
class Modified:
    """A row of Narang et al.: parameters in millions, steps a second, losses, SuperGLUE, XSum."""

    parameters: float
    speed: float | None
    early: float
    final: float
    superglue: float | None = None
    xsum: float | None = None


def _curve(variant: str, *pairs: tuple[float, float]) -> tuple[Told, ...]:
    """A variant after 1, 2, … million samples: accuracy and loss."""
    return tuple(Told(variant, i, *pair) for i, pair in enumerate(pairs, 1))


RECURSIVE: dict[str, tuple[Told, ...]] = {
    "masked-relative": (
        *_curve("6 layers", (0.4289, 0.3094), (0.4656, 0.2812), (0.4817, 0.2688), (0.4940, 0.2612)),
        *_curve(
            "1 layer × 6", (0.4422, 0.3030), (0.4678, 0.2822), (0.4787, 0.2739), (0.4901, 0.2657)
        ),
        *_curve(
            "1 layer × 6, wide",
            *((0.4474, 0.2996), (0.4796, 0.2744), (0.4995, 0.2596), (0.5068, 0.2538)),
        ),
        *_curve("1 layer", (0.3201, 0.3768), (0.3405, 0.3567), (0.3523, 0.3481), (0.3576, 0.3423)),
        *_curve(
            "1 layer, wide", (0.3397, 0.3603), (0.3601, 0.3420), (0.3720, 0.3328), (0.3803, 0.3260)
        ),
    ),
    "masked-absolute": (
        *_curve("6 layers", (0.4196, 0.3145), (0.4583, 0.2847), (0.4775, 0.2705), (0.4880, 0.2620)),
        *_curve(
            "1 layer × 6", (0.4108, 0.3243), (0.4475, 0.2945), (0.4635, 0.2852), (0.4761, 0.2750)
        ),
        *_curve("1 layer", (0.3034, 0.3888), (0.3310, 0.3632), (0.3435, 0.3524), (0.3509, 0.3456)),
        *_curve(
            "1 layer, wide", (0.3221, 0.3726), (0.3498, 0.3485), (0.3640, 0.3369), (0.3723, 0.3298)
        ),
    ),
    "causal-relative": (  # losses left out: two definitions of them stand side by side there
        Told("6 layers", 1, 0.3138),
        Told("1 layer × 6", 1, 0.3039),
        Told("1 layer × 6, wide", 1, 0.3118),
        Told("1 layer", 1, 0.2432),
        Told("1 layer, wide", 1, 0.2571),
    ),
    "layers": (
        Told("1 layer", 1, 0.3034),
        Told("2 layers", 1, 0.3814),
        Told("1 layer × 2", 1, 0.3995),
        Told("3 layers", 1, 0.4146),
        Told("1 layer × 3", 1, 0.4118),
        Told("6 layers", 1, 0.4196),
        Told("1 layer × 6", 1, 0.4108),
        Told("1 layer × 12", 1, 0.3908),
    ),
    "heads": (
        Told("1 layer × 6, several heads", 1, 0.4422),  # 12
        Told("1 layer × 6, one head", 1, 0.3781),
    ),
}
# Accuracy of a model trained with 6 rounds, RoBERTa, and with 12, GPT-2, at other numbers of them.
ROUNDS = {6: {3: 0.382, 6: 0.442, 9: 0.384, 12: 0.068}, 12: {6: 0.498, 12: 0.540, 18: 0.534}}

VANILLA = Modified(223, 3.50, 2.182, 1.838, 71.66, 17.78)
SPREAD = 0.005  # of five runs of the vanilla model, early loss
MODIFIED: dict[str, Modified] = {
    "GELU": Modified(223, 3.6, 2.179, 1.838, 75.79, 17.86),
    "Swish": Modified(223, 3.6, 2.186, 1.847, 73.77, 17.74),
    "sigmoid": Modified(223, 3.5, 2.291, 1.867, 74.3, 17.5),
    "GLU": Modified(223, 3.6, 2.174, 1.814, 74.20, 17.42),
    "LiGLU": Modified(223, 3.6, 2.149, 1.798, 75.34, 17.97),
    "ReGLU": Modified(223, 3.5, 2.145, 1.803, 76.17, 18.36),
    "GeGLU": Modified(223, 3.5, 2.130, 1.792, 75.96, 18.27),
    "SwiGLU": Modified(223, 3.5, 2.127, 1.789, 76.00, 18.20),
    "RMSNorm": Modified(223, 3.68, 2.167, 1.821, 75.45, 17.94),
    "ReZero": Modified(223, None, 2.262, 1.939, 61.7, 15.6),
    "shared layers": Modified(65, 3.91, 2.497, 2.164, 64.50, 14.53),
    "narrow embedding": Modified(227, None, 2.208, 1.855, 70.4, 15.9),
    "head of its own": Modified(273, None, 2.195, 1.834, 73.0, 17.6),
}


def narang() -> dict[str, Modified]:
    """Their rows by our names; a LayerNorm in place of RMSNorm is theirs the other way round."""
    swap = MODIFIED["RMSNorm"]
    turned = lambda theirs, base: round(2 * base - theirs, 3)
    back = Modified(223, None, turned(swap.early, 2.182), turned(swap.final, 1.838))
    return {**MODIFIED, "LayerNorm": back}
