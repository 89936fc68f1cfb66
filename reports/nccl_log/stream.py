"""A log as blocks of whole lines, whatever its size: plain or gzip, cut or binary.

Blocks are small, so a log of any size is read in bounded memory. Of a line without an end only the start is
kept; a gzip file that stops in the middle yields what it held. Nothing here knows NCCL.

>>> import io
>>> source = Source(io.BytesIO(b"one\\ntwo"))
>>> list(source)
[b'one', b'two']
>>> source.cut
'its last line has no end'
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

BLOCK_BYTES = 1 << 20  # small enough to stay in a CPU's cache while it is read
LINE_BYTES = 1 << 20  # NCCL prints lines of at most a few KB
GZIP_MAGIC = b"\x1f\x8b"


class Source:
    """Iterates over blocks of whole lines of one open binary file, without the newline at each block's end.

    After the iteration, `num_bytes` says how much was read (unpacked), and `cut` says in words why the file
    looks cut; "" where it ends as a file should.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.num_bytes = 0
        self.cut = ""

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        while block := self._read():
            self.num_bytes += len(block)
            end = block.rfind(b"\n")
            if end < 0 and len(rest) < LINE_BYTES:
                rest += block
                continue
            if end < 0:  # inside a line too long to be one: only its start is kept
                continue
            yield rest + block[:end]
            rest = block[end + 1 :]
        if rest:
            self.cut = self.cut or "its last line has no end"
            yield rest

    def _read(self) -> bytes:
        try:
            return self.file.read(BLOCK_BYTES)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self.cut = f"its gzip stream is broken ({error})"
            return b""


@contextmanager
def opened(path: str) -> Iterator[Source]:
    """The source behind a path: a file, a gzip file (told by its first bytes), or "-" for standard input.

    OSError where it cannot be opened.
    """
    if path == "-":
        yield Source(sys.stdin.buffer)
        return
    with Path(path).open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        if packed:
            with gzip.open(file) as unpacked:
                yield Source(unpacked)  # type: ignore[arg-type]
        else:
            yield Source(file)
