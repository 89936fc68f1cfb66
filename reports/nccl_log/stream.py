"""A log as blocks of whole lines, whatever its size: plain or gzip, cut or binary.

Blocks are small, so a log of any size is read in bounded memory. Of a line without an end only the start is
kept; a gzip file that stops in the middle yields what it held. Nothing here knows NCCL.

>>> source = Source(iter([b"one\\nt", b"wo"]))
>>> list(source)
[b'one', b'two']
>>> source.cut
'its last line has no end'
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

BLOCK_BYTES = 1 << 20  # small enough to stay in a CPU's cache while it is read
LINE_BYTES = 1 << 20  # NCCL prints lines of at most a few KB
PACKED_BYTES = 1 << 16  # gzip unpacks to at most a thousand times as much
GZIP_MAGIC = b"\x1f\x8b"
GZIP_WBITS = 31  # zlib's code for a gzip header and trailer


class Source:
    """Iterates over blocks of whole lines, without the newline at each block's end.

    `parts` are the bytes as they come, cut anywhere; a part stream that ends early raises EOFError. After the
    iteration, `num_bytes` says how much came, and `cut` says in words why the file looks cut; "" where it
    ends as a file should.
    """

    def __init__(self, parts: Iterator[bytes]) -> None:
        self.parts = parts
        self.num_bytes = 0
        self.cut = ""

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        while part := self._next():
            self.num_bytes += len(part)
            end = part.rfind(b"\n")
            if end >= 0:
                yield rest + part[:end]
                rest = part[end + 1 :]
            elif len(rest) < LINE_BYTES:
                rest += part
            # else inside a line too long to be one: only its start is kept
        if rest:
            self.cut = self.cut or "its last line has no end"
            yield rest

    def _next(self) -> bytes:
        try:
            return next(self.parts, b"")
        except EOFError as error:
            self.cut = str(error)
            return b""


@contextmanager
def opened(path: str) -> Iterator[Source]:
    """The source behind a path: a file, a gzip file (told by its first bytes), or "-" for standard input.

    OSError where it cannot be opened.
    """
    if path == "-":
        yield Source(plain(sys.stdin.buffer))
        return
    with Path(path).open("rb") as file:
        packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        file.seek(0)
        yield Source(unpacked(file) if packed else plain(file))


def plain(file: BinaryIO, size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """A file's bytes in blocks."""
    return iter(lambda: file.read(size), b"")


def unpacked(file: BinaryIO) -> Iterator[bytes]:
    """A gzip file's content in blocks, one gzip member after the other.

    Raises EOFError, after all that could be unpacked, where the file is cut or broken.
    """
    member = None
    for packed in plain(file, PACKED_BYTES):
        while packed:
            member = member or zlib.decompressobj(GZIP_WBITS)
            try:
                part = member.decompress(packed)
            except zlib.error as error:
                raise EOFError(f"its gzip stream is broken ({error})") from None
            if part:
                yield part
            packed = b""
            if member.eof:
                packed, member = member.unused_data.lstrip(b"\0"), None
    if member:
        raise EOFError("its gzip stream is broken (it ends too early)")
