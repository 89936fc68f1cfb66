"""Packed token files: real tokens from storage, and the loader that reads them ahead of the step.

The format: a header of 4096 bytes, JSON padded with spaces, then the tokens, little-endian, one after the other with
no padding between documents:

    {"format": "packed tokens", "version": 1, "vocab": 128256, "dtype": "uint32", "tokens": 1000000}

Row r of step t is the (t x batch + r)-th stretch of `sequence` tokens, and the one token after it; past the end the
file is read again from its start. A thread reads the rows of the next step while this one computes, so a step waits
only where storage is slower than compute. Every layout reads the same rows.

    python -m reference_model.packed made-up.tokens --vocab 128256 --count 10000000
    python -m reference_model.packed corpus.tokens --vocab 128256 --raw corpus.bin --dtype uint32
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

HEADER_BYTES = 4096
FORMAT = {"format": "packed tokens", "version": 1}
DTYPES = {"uint16": torch.uint16, "uint32": torch.uint32}
CHUNK = 2**22  # tokens written at a time
WINDOWS, WINDOW = 64, 1024  # stretches, and tokens of each, by which two files are told apart


class PackedTokens:
    """The batches of one packed file, for the rows of one rank."""

    def __init__(self, file: int, header: dict[str, Any], *, path: str, sequence: int, batch: int) -> None:
        self._file, self._path, self._header, self.sequence, self.batch = file, path, header, sequence, batch
        self._dtype = DTYPES[header["dtype"]]
        self.stretches = (header["tokens"] - 1) // sequence  # each has the token after it, too
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="tokens")
        self._next: tuple[int, range, Future[Tensor]] | None = None

    @classmethod
    def open(cls, path: str, *, vocab: int, sequence: int, batch: int) -> Self:
        """The file at `path`, for batches of `batch` rows. ValueError, with the cure, where it is not for the model."""
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise ValueError(f"token file {path}: {error.strerror}; every rank must see it under this path") from None
        try:
            header = read_header(file, path)
            if header["vocab"] != vocab:
                raise ValueError(
                    f"token file {path} is of a vocabulary of {header['vocab']} and the model's is {vocab}: "
                    "pack it with the model's tokenizer"
                )
            if (header["tokens"] - 1) // sequence < batch:
                raise ValueError(
                    f"token file {path} has {header['tokens']} tokens and one step of {batch} sequences reads "
                    f"{batch * sequence + 1}: use a longer file, or a smaller batch"
                )
        except ValueError:
            os.close(file)
            raise
        return cls(file, header, path=path, sequence=sequence, batch=batch)

    def rows(self, *, step: int, rows: range) -> tuple[Tensor, Tensor]:
        """Tokens and the tokens that follow them, int64 [rows, sequence] each, on the CPU."""
        if self._next is not None and self._next[:2] == (step, rows):
            both = self._next[2].result()
        else:
            both = self._read(step, rows)
        self._next = (step + 1, rows, self._ahead.submit(self._read, step + 1, rows))
        return both[:, :-1], both[:, 1:]

    def fingerprint(self) -> str:
        """Of the header and of WINDOWS stretches from the first to the last: another file has another one."""
        width, length = self._dtype.itemsize, self._header["tokens"]
        found = hashlib.sha256(os.pread(self._file, HEADER_BYTES, 0))
        for i in range(WINDOWS):
            at = max(0, length - WINDOW) * i // (WINDOWS - 1)
            found.update(os.pread(self._file, WINDOW * width, HEADER_BYTES + at * width))
        return found.hexdigest()

    def close(self) -> None:
        """Stop reading ahead and close the file."""
        self._ahead.shutdown(cancel_futures=True)
        os.close(self._file)

    def _read(self, step: int, rows: range) -> Tensor:
        width = self._dtype.itemsize
        found = torch.empty(len(rows), self.sequence + 1, dtype=torch.int64)
        for place, row in enumerate(rows):
            at = (step * self.batch + row) % self.stretches * self.sequence
            data = os.pread(self._file, (self.sequence + 1) * width, HEADER_BYTES + at * width)
            if len(data) != (self.sequence + 1) * width:
                raise ValueError(f"token file {self._path} ends early: at token {at} of {self._header['tokens']}")
            found[place] = torch.frombuffer(bytearray(data), dtype=self._dtype).long()
        if found.max() >= self._header["vocab"]:
            raise ValueError(
                f"token file {self._path} holds token {int(found.max())} near step {step}, and its vocabulary is "
                f"{self._header['vocab']}: it was packed with another tokenizer than it says"
            )
        return found


def read_header(file: int, path: str) -> dict[str, Any]:
    """The header of an open file. ValueError where it is none, or where the file is not as long as it says."""
    try:
        header: dict[str, Any] = json.loads(os.pread(file, HEADER_BYTES, 0))
    except (ValueError, OSError):
        raise ValueError(f"{path} is no packed token file: make one with python -m reference_model.packed") from None
    known = isinstance(header, dict) and all(header.get(k) == v for k, v in FORMAT.items())
    if not known or header.get("dtype") not in DTYPES:
        raise ValueError(f"{path} is no packed token file of version 1: make one with python -m reference_model.packed")
    if not all(type(header.get(k)) is int and header[k] > 0 for k in ("vocab", "tokens")):
        raise ValueError(f"token file {path}: vocab and tokens must be whole numbers above zero")
    held = (os.fstat(file).st_size - HEADER_BYTES) // DTYPES[header["dtype"]].itemsize
    if held != header["tokens"]:
        raise ValueError(f"token file {path} says {header['tokens']} tokens and holds {held}: copy or pack it again")
    return header


def pack(path: str | Path, parts: Iterable[Tensor], *, vocab: int) -> int:
    """Write tokens (int64 tensors, an iterable of them) as a packed file; their number. It appears whole or never."""
    dtype = "uint16" if vocab <= 2**16 else "uint32"
    unfinished, count = Path(f"{path}.part"), 0
    with unfinished.open("wb") as file:
        file.write(b" " * HEADER_BYTES)
        for part in parts:
            if len(part) and not 0 <= int(part.min()) <= int(part.max()) < vocab:
                raise ValueError(
                    f"tokens from {int(part.min())} to {int(part.max())} are outside a vocabulary of {vocab}"
                )
            file.write(part.to(DTYPES[dtype]).numpy().tobytes())
            count += len(part)
        file.seek(0)
        file.write(json.dumps({**FORMAT, "vocab": vocab, "dtype": dtype, "tokens": count}).encode())
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    return count


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. 0: written; 4: refused."""
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m reference_model.packed", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("path", help="the file to write")
    parser.add_argument("--vocab", type=int, required=True, help="of the tokenizer")
    parser.add_argument("--raw", help="tokens one after the other, without a header; empty: made-up ones")
    parser.add_argument("--dtype", choices=DTYPES, default="uint32", help="of the raw file's tokens")
    parser.add_argument("--count", type=int, default=10_000_000, help="of made-up tokens")
    options = parser.parse_args(argv)
    try:
        count = pack(options.path, raw(options) if options.raw else made_up(options), vocab=options.vocab)
    except (ValueError, OSError) as error:
        print(f"python -m reference_model.packed: {error}", file=sys.stderr)
        return 4
    print(f"{options.path}: {count:,} tokens")
    return 0


def raw(options: argparse.Namespace) -> Iterator[Tensor]:
    """The tokens of a file without a header, in parts."""
    dtype = DTYPES[options.dtype]
    with Path(options.raw).open("rb") as file:
        while data := file.read(CHUNK * dtype.itemsize):
            if len(data) % dtype.itemsize:
                raise ValueError(f"{options.raw} ends within a token of {dtype.itemsize} bytes: is it {options.dtype}?")
            yield torch.frombuffer(bytearray(data), dtype=dtype).long()


def made_up(options: argparse.Namespace) -> Iterator[Tensor]:
    """Random tokens, low ones more frequent, in parts."""
    generator = torch.Generator().manual_seed(0)
    for first in range(0, options.count, CHUNK):
        drawn = torch.rand(min(CHUNK, options.count - first), generator=generator, dtype=torch.float64)
        yield (drawn**3 * options.vocab).long()


if __name__ == "__main__":
    sys.exit(main())
