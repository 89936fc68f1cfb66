"""Small pictures as PNG inside a page: for maps of so many cells that drawing each would make the page heavy.

    link = data_link(levels, PALETTE)        # "data:image/png;base64,..."

Four bits a cell, the same bytes for the same cells. The colours suit light and dark pages alike.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import numpy.typing as npt

PALETTE = (
    "c27632",
    "cd8c4f",
    "d9a671",
    "e6c6a0",
    "e9ddcb",
    "d3dee7",
    "b3cbde",
    "94b7d3",
    "74a3c7",
)  # worst to best: ochre to blue, told apart by all eyes
NOTHING = len(PALETTE)  # the level of a cell without a value: transparent


def data_link(levels: npt.NDArray[np.uint8], palette: tuple[str, ...] = PALETTE) -> str:
    """A PNG of levels (rows x columns, each an index into `palette`, or NOTHING) as a link that needs no file."""
    return "data:image/png;base64," + base64.b64encode(png(levels, palette)).decode()


def png(levels: npt.NDArray[np.uint8], palette: tuple[str, ...] = PALETTE) -> bytes:
    """The PNG itself. ValueError for more than 16 colours or a level that has none."""
    if len(palette) >= 16 or (levels.size and int(levels.max()) > len(palette)):
        raise ValueError(f"levels up to {int(levels.max(initial=0))} of {len(palette)} colours: four bits hold 15")
    height, width = levels.shape
    even = np.zeros((height, width + width % 2), dtype=np.uint8)
    even[:, :width] = levels
    packed = even[:, ::2] << 4 | even[:, 1::2]
    lines = np.zeros((height, 1 + packed.shape[1]), dtype=np.uint8)  # each line begins with its filter: none
    lines[:, 1:] = packed
    colours = b"".join(bytes.fromhex(colour) for colour in (*palette, "000000"))
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 4, 3, 0, 0, 0))
        + _chunk(b"PLTE", colours)
        + _chunk(b"tRNS", b"\xff" * len(palette) + b"\x00")
        + _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
