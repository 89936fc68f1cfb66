"""What tests may need of the machine: root, Slurm, Chromium.

`@pytest.mark.machine("root")` probes for it. Where it is absent the test is skipped with the reason, but in
CI (the variable CI is set, as `.ci/run` does) it fails: there a skip would hide that nothing was tested.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import signal
from pathlib import Path

import hypothesis
import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
hypothesis.settings.register_profile("rackproof", deadline=None)  # the machine may be busy: no speed is asserted
hypothesis.settings.load_profile("rackproof")
CLONE_NEWNET = 0x40000000


def pytest_configure() -> None:
    """Where Ctrl-C is ignored (nohup, a shell's background), the campaigns that tests start must not inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or in CI fail, a test whose machine lacks something."""
    for marker in item.iter_markers("machine"):
        for what in marker.args:
            lack = LACKS[what]()
            if lack and os.environ.get("CI"):
                pytest.fail(f"CI must run this, but {lack}", pytrace=False)
            if lack:
                pytest.skip(lack)


def lacks_root() -> str:
    """Why network namespaces cannot be made here; "" where they can."""
    if os.geteuid() != 0:
        return "it needs root, to make network namespaces: sudo make test"
    missing = [tool for tool in ("ip", "tc", "nft") if not shutil.which(tool, path=search_path())]
    if missing:
        return f"it needs {', '.join(missing)}: apt-get install iproute2 nftables"
    return "" if may_make_namespaces() else "root may not make network namespaces here (a locked-down container?)"


def lacks_slurm() -> str:
    """Why a Slurm cluster cannot be started here; "" where it can."""
    if lack := lacks_root():
        return lack
    missing = [tool for tool in ("slurmctld", "slurmd", "srun", "munged") if not shutil.which(tool, path=search_path())]
    packages = "slurm-wlm slurm-wlm-basic-plugins munge"
    return f"it needs {', '.join(missing)}: apt-get install {packages}" if missing else ""


def lacks_chromium() -> str:
    """Why no page can be looked at here; "" where it can."""
    return "" if any(map(shutil.which, CHROMIUM)) else "it needs a browser: apt-get install chromium"


def lacks_mpi() -> str:
    """Why no mpirun can be tried here; "" where it can."""
    return "" if shutil.which("mpirun") else "it needs mpirun: apt-get install openmpi-bin"


def lacks_sshd() -> str:
    """Why no sshd can be started on the nodes of a bed; "" where it can."""
    missing = [tool for tool in ("sshd", "ssh", "ssh-keygen") if not shutil.which(tool, path=search_path())]
    return lacks_root() or (f"it needs {', '.join(missing)}: apt-get install openssh-server" if missing else "")


def lacks_fuse() -> str:
    """Why no FUSE file system can be mounted here; "" where it can."""
    if not Path("/dev/fuse").exists():
        return "it needs FUSE: the kernel's module (modprobe fuse), and /dev/fuse in a container"
    return "" if shutil.which("bindfs") else "it needs bindfs: apt-get install bindfs"


def lacks_prometheus() -> str:
    """Why Prometheus' own tools cannot be asked here; "" where they can."""
    missing = [tool for tool in ("promtool", "amtool") if not shutil.which(tool)]
    packages = "prometheus prometheus-alertmanager"
    return f"it needs {', '.join(missing)}: apt-get install {packages}" if missing else ""


LACKS = {
    "root": lacks_root, "slurm": lacks_slurm, "chromium": lacks_chromium, "mpi": lacks_mpi, "sshd": lacks_sshd,
    "fuse": lacks_fuse, "prometheus": lacks_prometheus,
}  # fmt: skip


def search_path() -> str:
    """PATH with the folders of system tools, which a user's PATH leaves out."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


@functools.cache
def may_make_namespaces() -> bool:
    """Whether the kernel lets this process make a network namespace, tried in a child."""
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0
