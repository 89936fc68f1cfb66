"""Which of this machine's addresses the nodes reach: the one that the kernel would talk to them from."""

from __future__ import annotations

import socket

from benchmarks.launch.job import Job


def facing(job: Job) -> str:
    """The address, on the route to the job's nodes; the loopback where the job is on this machine only.

    Raises ValueError where a node's name or address means nothing here.
    """
    towards = job.reach or (job.hosts[0] if job.hosts else "")
    if not towards:
        return "127.0.0.1"
    try:
        family, _, _, _, address = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing: it only chooses the route
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ValueError(f"no route from this machine to {towards}: {error}") from None
