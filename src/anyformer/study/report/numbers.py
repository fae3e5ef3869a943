"""Numbers as people read them: 1.2 M, 3.4 T, 21 min."""

from __future__ import annotations

import math

_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))


def short(value: float, digits: int = 3) -> str:
    """A number with a prefix of the metric system: 1.2 M."""
    if not math.isfinite(value):
        return str(value)
    power = 0
    while abs(value) >= 999.5 and power < len(_PREFIXES) - 1:
        value, power = value / 1000, power + 1
    told = f"{value:.{digits}g}".replace("-", "−")
    return f"{told} {_PREFIXES[power]}".strip()


def unit(longest: float) -> tuple[float, str]:
    """The unit of time for an axis that reaches so many seconds: its length and its name."""
    return next(((size, name) for size, name in _UNITS if longest >= 2 * size), _UNITS[-1])


def duration(seconds: float) -> str:
    """So many seconds in the unit that suits them."""
    size, name = unit(seconds)
    return f"{seconds / size:.3g} {name}"


def exact(value: object) -> str:
    """A value for a table of data: six digits, nothing for what isn't known."""
    if value is None:
        return ""
    return f"{value:.6g}".replace("-", "−") if isinstance(value, float) else str(value)
