"""Several "hosts" on one Linux machine, with links that can be made slow, lossy, late, wrong or dead.

Claims such as "finds the slow link" are tested here against real faults on real links between real
processes. It needs root: `@pytest.mark.machine("root")`.

    bed.py         the hosts and the fabric between them
    faults.py      faults by name, planted and lifted
    launch.py      ranks on the hosts, forked from one process that has imported torch
    flows.py       bandwidth and latency between hosts, for tests of the bed itself
    namespaces.py  network namespaces that vanish with their owner
    relay.py       a wire that delays or corrupts
"""
