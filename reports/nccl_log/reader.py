"""Reads blocks of log lines, at a few hundred nanoseconds a line.

Most lines of a large log are channel lines, calls, or the application's own. A channel line is split once at
its mark and counted by its text, to be parsed later, once per text. A block without channel lines is split at
NCCL's marks, so that the application's lines cost next to nothing; of a call only the choice of algorithm is
counted. Only the few lines left are parsed at once. The prefix that names host, process and GPU is looked up
as bytes, whatever a launcher put before it.

>>> reader = Reader()
>>> reader.feed(b"node1:41:57 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[4] via P2P/CUMEM", 1)
1
>>> reader.finish().gpus["node1", 41, 3].transports["P2P/CUMEM"].count
1
"""

from __future__ import annotations

import re
from collections.abc import Callable

from reports.nccl_log.connections import fold
from reports.nccl_log.facts import Facts, Gpu
from reports.nccl_log.messages import HANDLERS, Handler, tuning, version, warning
from reports.nccl_log.watchdog import application

MARK = b" NCCL "
CHANNEL = b" NCCL INFO Channel "
LEVEL_BYTES = len(b"INFO ")
KEY_BYTES = len(b"INFO Chan")
TEXT_BYTES = 2048  # of one message; NCCL's own limit is 1024
PREFIX = re.compile(rb"([\w.-]+):(\d{1,9}):(\d{1,9}) \[(-?\d{1,6})\]")
COLOUR = re.compile(rb"\x1b\[[\d;]*m")
LOOSE = re.compile(rb"\[(\d{1,6})\]\s*$")
GLANCE_BYTES = 1 << 13
MAX_PREFIXES = 1 << 15
MAX_KEYS = 1 << 12
MAX_FRESH = 1 << 16  # distinct channel and tuning texts that may wait to be parsed

MessageHandler = Callable[[bytes, bytes, int], None]
"""function(prefix, message from its level on, place)"""


class Reader:
    """Feeds lines into Facts. One reader for all files of a report."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.num_lines = 0
        self.num_nccl_lines = 0
        self._fresh = 0
        self._tunings: dict[bytes, list[int]] = {}
        self._by_prefix: dict[bytes, Gpu] = {}
        self._tails: dict[bytes, dict[bytes, list[int]]] = {}  # prefix -> channel texts of its GPU
        self._table: dict[bytes, MessageHandler | None] = {b"INFO Ring": self._ring, b"INFO Chan": self._channel}
        self._counting: MessageHandler = self._count_tuning  # one object, so that the hot loop can ask `is`

    def feed(self, block: bytes, first: int) -> int:
        """Read the lines of `block`; `first` is the place of the first of them. How many lines there were.

        Channel lines come in bursts: a glance at both ends picks the faster of two ways that read the same.
        """
        before = self.num_lines
        if CHANNEL in block[:GLANCE_BYTES] or CHANNEL in block[-GLANCE_BYTES:]:
            for place, line in self._count_channels(block.split(b"\n"), first):
                self._line(line, place)
        else:
            self._sparse(block, first)
        if self._fresh > MAX_FRESH:
            self._fold()
        return self.num_lines - before

    def finish(self) -> Facts:
        """Parse what still waits; the facts of everything fed so far."""
        self._fold()
        return self.facts

    def _count_channels(self, lines: list[bytes], first: int) -> list[tuple[int, bytes]]:
        """Count the channel lines among `lines`; the others, with their places."""
        others = []
        tails_of = self._tails.get
        for place, line in enumerate(lines, first):
            prefix, mark, text = line.partition(CHANNEL)
            if not mark:
                others.append((place, line))
                continue
            tails = tails_of(prefix)
            if tails is None:
                tails = self._gpu(prefix).tails
            tail = text[5:]  # without "00/0 ", the channel: one connection has many
            entry = tails.get(tail)
            if entry is not None:
                entry[0] += 1
            elif MARK in tail:
                self._garbled(tail, place)
            else:
                self._fresh += 1
                tails[tail[:200]] = [1, place]
        self.num_lines += len(lines)
        self.num_nccl_lines += len(lines) - len(others)
        return others

    def _sparse(self, block: bytes, first: int) -> None:
        """A block without channel lines, split at NCCL's marks: what follows a mark, up to the next, is a piece."""
        pieces = block.split(MARK)
        get, learn, counting, counted = self._table.get, self._learn, self._counting, self._tunings.get
        at = len(pieces[0])  # of the mark before the piece
        numbered, place = 0, first  # newlines before `numbered` are in `place`
        end = -1  # of the last line that was handled whole: a mark before it was inside that line
        for piece in pieces[1:]:
            handler = get(piece[:KEY_BYTES], learn)
            if handler is counting:
                if (
                    piece[16:18] == b"op" or piece[20:22] == b"op"
                ):  # "INFO AllReduce: opCount ...", ReduceScatter: a call
                    handler = None
                elif entry := counted(piece[: piece.find(b"\n")]):
                    entry[0] += 1
                    handler = None
            if handler is not None and at <= end:
                self.num_nccl_lines -= 1
            elif handler is not None:
                place += block.count(b"\n", numbered, at)
                numbered = at
                end = block.find(b"\n", at) % (len(block) + 1)  # the end of the block where there is none
                handler(block[block.rfind(b"\n", 0, at) + 1 : at], block[at + len(MARK) : end], place)
            at += len(MARK) + len(piece)
        self.num_lines += place - first + block.count(b"\n", numbered) + 1
        self.num_nccl_lines += len(pieces) - 1
        if block.count(b"CCL") >= len(pieces):  # somewhere besides the marks
            self._between(block, first)

    def _between(self, block: bytes, first: int) -> None:
        """Lines of the application, among them those that speak of NCCL."""
        for place, line in enumerate(block.split(b"\n"), first):
            if b"CCL" in line and MARK not in line:
                self._application(line, place)

    def _line(self, line: bytes, place: int) -> None:
        prefix, mark, message = line.partition(MARK)
        if not mark:
            if b"CCL" in line:
                self._application(line, place)
            return
        self.num_nccl_lines += 1
        handler = self._table.get(message[:KEY_BYTES], self._learn)
        if handler is not None:
            handler(prefix, message, place)

    def _garbled(self, text: bytes, place: int) -> None:
        """Two ranks wrote into one line: the first text is lost, what follows is read as its own line."""
        self.facts.garbled.add(place)
        following = PREFIX.search(text)
        if following:
            self._line(text[following.start() :], place)

    def _channel(self, prefix: bytes, message: bytes, place: int) -> None:
        self._connection(prefix, message[len(b"INFO Channel ") :], place)

    def _ring(self, prefix: bytes, message: bytes, place: int) -> None:
        """A connection as NCCL up to 2.7 printed it: "Ring 00 : 0 -> 1 [send] via ..."."""
        self._connection(prefix, message[len(b"INFO Ring ") :], place)

    def _connection(self, prefix: bytes, text: bytes, place: int) -> None:
        if MARK in text:
            self._garbled(text, place)
            return
        tails = self._gpu(prefix).tails
        tail = text[5:][:200]
        self._fresh += tail not in tails
        tails.setdefault(tail, [0, place])[0] += 1

    def _count_tuning(self, _: bytes, message: bytes, place: int) -> None:
        """Operations by the thousand: "AllReduce: 1024 Bytes -> Algo ..." is counted by its text, calls are not."""
        if b" Bytes -> Algo " in message[:200]:
            self._fresh += 1
            self._tunings.setdefault(message, [0, place])[0] += 1

    def _learn(self, prefix: bytes, message: bytes, place: int) -> None:
        """The first message of a kind: find who reads that kind, and remember it."""
        key = message[:KEY_BYTES]
        level, start = key[:4], key[LEVEL_BYTES:]
        handler: MessageHandler | None = None
        known = HANDLERS.get(start) or HANDLERS.get(start[:1])
        if level == b"INFO" and known is tuning:
            handler = self._counting
        elif level == b"INFO" and known:
            handler = self._parsed(known)
        elif level in (b"WARN", b"ERRO"):
            handler = self._parsed(warning)
        elif level not in (b"INFO", b"TRAC", b"CALL", b"ABOR"):
            handler = self._other
        if len(self._table) < MAX_KEYS:
            self._table[key] = handler
        if handler is not None:
            handler(prefix, message, place)

    def _parsed(self, known: Handler) -> MessageHandler:
        def read(prefix: bytes, message: bytes, place: int) -> None:
            if MARK in message and PREFIX.search(message):
                self._garbled(message, place)
                return
            text = message[LEVEL_BYTES:TEXT_BYTES].decode("utf-8", "replace")
            known(self.facts, self._gpu(prefix), text, place)

        return read

    def _other(self, prefix: bytes, message: bytes, place: int) -> None:
        self._application(prefix + MARK + message, place)

    def _application(self, line: bytes, place: int) -> None:
        """A line that a framework, or an older NCCL without its prefix, printed."""
        text = line[:TEXT_BYTES].decode("utf-8", "replace")
        version(self.facts, Gpu("", 0, -1), text, place)
        application(self.facts, text, place)

    def _gpu(self, prefix: bytes) -> Gpu:
        """Who printed a line, from what stands before its mark."""
        known = self._by_prefix.get(prefix)
        if known is not None:
            return known
        near = COLOUR.sub(b"", prefix[-500:])
        every = list(PREFIX.finditer(near))
        if every:
            found = every[-1]  # a launcher may have put a "host:..." of its own before it
            gpu = self.facts.gpu(found[1].decode("utf-8", "replace")[:120], int(found[2]), int(found[4]))
        else:
            loose = LOOSE.search(near)
            gpu = self.facts.gpu("", 0, int(loose[1]) if loose else -1)
        if len(self._by_prefix) >= MAX_PREFIXES:  # time stamps make every prefix new
            self._by_prefix.clear()
            self._tails.clear()
        if len(prefix) <= 500:
            self._by_prefix[prefix] = gpu
            self._tails[prefix] = gpu.tails
        return gpu

    def _fold(self) -> None:
        fold(self.facts)
        nobody = Gpu("", 0, -1)
        for message, (count, place) in self._tunings.items():
            tuning(self.facts, nobody, message[LEVEL_BYTES:200].decode("utf-8", "replace"), place, count)
        self._tunings.clear()
        self._fresh = 0
