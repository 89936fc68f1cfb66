"""Numbers as people read them: SI inside, scaled only here.

Rates and times get decimal prefixes (GB = 1e9). Buffer sizes that are whole KiB get binary ones (GiB =
2^30). The two are never mixed. Nothing is parsed here.

>>> quantity(3.012e11, "B/s"), quantity(1.23e-5, "s"), size(1 << 30), size(5_000_000)
('301 GB/s', '12.3 us', '1 GiB', '5 MB')
"""

from __future__ import annotations

import math

DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def digits(value: float) -> str:
    """Three significant digits, never in exponents between 0.001 and a million.

    >>> digits(301.4), digits(12.34), digits(0.98765), digits(123456.0)
    ('301', '12.3', '0.988', '123,456')
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-3 or size >= 1e6:
        return f"{value:.3g}"
    if size >= 999.5:
        return f"{value:,.0f}"
    text = f"{value:.{max(0, 2 - math.floor(math.log10(size)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit: B/s, FLOP/s, s, 1/s, B or 1 (a bare number). None is a dash."""
    if value is None:
        return "–"
    if unit == "1":
        return digits(value)
    if unit == "B":
        return size(int(value))
    if unit == "1/s":
        return f"{digits(value)}/s"
    number, scaled = scale(value, unit)
    return f"{digits(number)} {scaled}"


def scale(value: float, unit: str) -> tuple[float, str]:
    """The number and the prefixed unit it is shown in.

    >>> scale(2.5e12, "FLOP/s")
    (2.5, 'TFLOP/s')
    """
    factor, name = scale_of(value, unit)
    return value / factor, name


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """The factor and the name of the unit that suits a value of this size.

    >>> scale_of(2.5e9, "B/s")
    (1000000000.0, 'GB/s')
    """
    if unit in ("1", "1/s") or value == 0 or not math.isfinite(value):
        return 1.0, unit
    magnitude = abs(value)
    if unit == "s":
        steps = [(factor, name) for factor, name in TIMES]
    else:
        steps = [(factor, prefix + unit) for factor, prefix in DECIMAL]
    for factor, name in steps:
        if magnitude >= factor * 0.9995:
            return factor, name
    return steps[-1]


def size(num_bytes: int) -> str:
    """A buffer size: binary where it is a whole number of KiB, else decimal.

    >>> size(8), size(1536), size(3 << 20), size(1_000_000)
    ('8 B', '1.5 KiB', '3 MiB', '1 MB')
    """
    if num_bytes >= 1024 and num_bytes % 512 == 0 and num_bytes % 1000 != 0:
        for factor, name in BINARY:
            if num_bytes >= factor:
                return f"{digits(num_bytes / factor)} {name}"
    number, unit = scale(num_bytes, "B")
    return f"{digits(number)} {unit}"


def percent(share: float | None) -> str:
    """A share as a signed percentage; None is a dash.

    >>> percent(-0.0871), percent(0.5)
    ('-8.7 %', '+50 %')
    """
    if share is None:
        return "–"
    if not math.isfinite(share):
        return "∞"
    text = f"{share * 100:+.1f}"
    return f"{text.removesuffix('.0')} %"


def share(value: float) -> str:
    """A share as a percentage without a sign.

    >>> share(0.52), share(0.163)
    ('52 %', '16.3 %')
    """
    return percent(value).lstrip("+")


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(0.25), duration(75), duration(7260)
    ('0.2 s', '1 min 15 s', '2 h 01 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} min"


SIZES = {"file_bytes": "files of", "window": "windows of"}  # params that are bytes too


def param(name: str, value: object) -> str:
    """One param as a table shows it: sizes scaled, everything else as it is.

    >>> param("bytes", 1 << 20), param("dtype", "bf16"), param("window", 32768)
    ('1 MiB', 'bf16', 'windows of 32 KiB')
    """
    if name == "bytes" and isinstance(value, int | float):
        return size(int(value))
    if name in SIZES and isinstance(value, int | float):
        return f"{SIZES[name]} {size(int(value))}"
    if name == "projected":
        return "PROJECTED"
    if name in ("bytes", "dtype", "op", "group", "layout", "contents", "model"):
        return str(value)
    return f"{name} {value}"
