"""What the framework says about NCCL in the same log: collectives that hung, errors that surfaced.

PyTorch's watchdog and its exceptions, read from lines that NCCL did not print.

>>> facts = Facts()
>>> application(facts, "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41, "
...     "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds", 9)
>>> [remark.text for remark in facts.remarks.values()]
['ALLREDUCE did not finish in 600 s']
"""

from __future__ import annotations

import re

from reports.nccl_log.facts import Facts

RANK = re.compile(r"\[?[Rr]ank ?(\d{1,9})\]?")
TIMEOUT = re.compile(r"Watchdog caught collective operation timeout.*?OpType=(\w+).*?Timeout\(ms\)=(\d{1,12})")
ERROR = re.compile(r"NCCL error in: |NCCL error: |nccl(?:System|Remote|Internal|UnhandledCuda|InvalidUsage)\w*[Ee]rror")
KIND = re.compile(
    r"unhandled system error|unhandled cuda error|remote process exited or there was a network error|internal error"
    r"|invalid usage|invalid argument|ncclSystemError|ncclRemoteError|ncclInternalError|ncclUnhandledCudaError"
)


def application(facts: Facts, text: str, place: int) -> None:
    """Keep what a line of the application says about a hang or an error of NCCL."""
    if found := TIMEOUT.search(text):
        words = f"{found[1]} did not finish in {int(found[2]) / 1e3:.0f} s"
        rank = RANK.search(text)
        facts.remark(words, words, "APP", f"rank {rank[1]}" if rank else "", place)
    elif ERROR.search(text):
        kind = KIND.search(text)
        words = f"The application got an NCCL error: {kind[0] if kind else text.strip()[:160]}"
        facts.remark(words, words, "APP", "", place)
