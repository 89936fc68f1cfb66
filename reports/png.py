"""An indexed picture as PNG bytes, with the standard library: for maps of more cells than a page can hold as shapes.

Format: W3C, Portable Network Graphics (third edition), chunks IHDR, PLTE, tRNS, IDAT
and IEND; no filter, colour type 3.

>>> picture(np.array([[0, 1]]), ["#000000", "#ffffff"])[:8]
b'\\x89PNG\\r\\n\\x1a\\n'
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def picture(cells: npt.NDArray[Any], palette: Sequence[str], *, clear: bool = False) -> bytes:
    """Rows of palette indexes (height, width), at most 256 colours "#rrggbb". ValueError for an index beyond them.

    `clear` makes the last colour transparent: the page behind is seen there, light or dark.
    """
    height, width = cells.shape
    if cells.size and not 0 <= cells.min() <= cells.max() < len(palette) <= 256:
        raise ValueError(f"a picture's cells index its palette of {len(palette)} colours")
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # each begins with its filter, none
    rows[:, 1:] = cells
    parts = [
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        _chunk(b"PLTE", b"".join(bytes.fromhex(colour.removeprefix("#")) for colour in palette)),
        *([_chunk(b"tRNS", b"\xff" * (len(palette) - 1) + b"\x00")] if clear else []),
        _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
        _chunk(b"IEND", b""),
    ]
    return SIGNATURE + b"".join(parts)


def data_uri(png: bytes) -> str:
    """The picture as the source of an image that loads nothing."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
