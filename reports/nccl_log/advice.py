"""What NCCL's warnings mean in plain words, and what to try.

A table of patterns over message texts, the most telling first. A consequence of something else says so, so
that the reader looks further. A warning that no row knows is reported as it stands: `unknown`, never dropped.

>>> advice_for("NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129", "WARN").severity
'wrong'
>>> advice_for("something new", "WARN") is None
True
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """One row: which texts it is for, what they mean, what to try."""

    pattern: re.Pattern[str]
    severity: str  # wrong | unknown | note
    sentence: str
    tries: tuple[str, ...] = ()
    levels: tuple[str, ...] = ("WARN",)


def _row(pattern: str, severity: str, sentence: str, *tries: str, info: bool = False) -> Advice:
    levels = ("WARN", "INFO", "APP") if info else ("WARN",)
    return Advice(re.compile(pattern, re.IGNORECASE), severity, sentence, tries, levels)


TABLE = (
    # one library everywhere, one GPU each
    _row(r"mismatched nccl version", "wrong", "Ranks run different NCCL versions, so NCCL refused to start.",
         "use one container image or one environment on every node", "look for a second libnccl.so in LD_LIBRARY_PATH"),
    _row(r"duplicate gpu detected", "wrong", "Two ranks share one GPU.",
         "torch.cuda.set_device(LOCAL_RANK) before the process group starts", "check CUDA_VISIBLE_DEVICES per rank"),
    _row(r"message truncated", "wrong", "Ranks called the same operation with different sizes.",
         "compare the shapes that each rank sends", "set TORCH_DISTRIBUTED_DEBUG=DETAIL"),
    # memory
    _row(r"ibv_(?:reg_\w*mr\w*|create_\w+) failed.*(?:cannot allocate memory|error -?12\b)", "wrong",
         "Memory could not be pinned for RDMA: the locked-memory limit is too low.",
         "ulimit -l unlimited (containers: --ulimit memlock=-1; services: LimitMEMLOCK=infinity)"),
    _row(r"no space left on device|failed to (?:extend|create|open) /dev/shm|creating shared memory segment",
         "wrong", "/dev/shm is too small or missing.",
         "containers: --shm-size=16g or --ipc=host", "Kubernetes: an emptyDir of medium Memory on /dev/shm"),
    _row(r"cuda failure.*out of memory", "wrong", "A GPU had no memory left for NCCL's buffers.",
         "leave a few GB of GPU memory free", "lower NCCL_BUFFSIZE or NCCL_MAX_NCHANNELS"),
    # GPUDirect RDMA
    _row(r"ibv_reg_dmabuf_mr failed", "wrong", "The network driver cannot register GPU memory through DMA-BUF.",
         "load nvidia-peermem, or update the network driver and the kernel",
         "NCCL_DMABUF_ENABLE=0 falls back to nvidia-peermem"),
    _row(r"got completion.*(?:error|status=) ?4\b", "wrong",
         "The network card could not read or write the memory it was given (local protection error).",
         "check that nvidia-peermem matches the GPU driver", "turn off ACS on the PCIe switches, or set iommu=pt",
         "NCCL_NET_GDR_LEVEL=LOC tells whether GPUDirect RDMA is the cause"),
    # the fabric
    _row(r"got completion.*(?:error|status=) ?12\b", "wrong",
         "A peer did not answer on the network: its link, its port or its process went away (retries exceeded).",
         "look for a flapping link or a dead rank at that time", "compare the port counters of both ends",
         "RoCE: check PFC and ECN on the switches", "raise NCCL_IB_TIMEOUT only after the link is proven good"),
    _row(r"got completion.*(?:error|status=) ?5\b", "unknown",
         "Network requests were flushed: this follows an earlier error, look above for the first one."),
    _row(r"got completion.*(?:error|status=) ?13\b", "wrong", "A receiver was not ready for too long (RNR retries).",
         "look for a rank that stalls: a swapping host, a stopped process"),
    _row(r"got completion.*(?:error|status=) ?\d+", "wrong", "A network request failed.",
         "find the code in `man ibv_wc_status_str`", "test that pair of ports with ib_write_bw"),
    _row(r"ibv_modify_qp failed.*(?:timed out|110)", "wrong", "Two network cards cannot reach each other.",
         "test that pair with ib_write_bw", "InfiniBand: check partition keys and the subnet manager",
         "RoCE: NCCL_IB_GID_INDEX must name a routable RoCE v2 address on both ends"),
    _row(r"ibv_modify_qp failed", "wrong", "A network connection could not be set up: a wrong address index or path.",
         "RoCE: show_gids, then NCCL_IB_GID_INDEX", "use the same kind of port (IB or RoCE) on both ends"),
    _row(r"async(?:hronous)? (?:fatal )?event.*(?:port|link)[ _]?(?:error|err|down)|port error", "wrong",
         "A network port went down while in use.", "check the cable, the transceiver and the switch port",
         "ibstat and the link-down counter of that port"),
    _row(r"async event.*(?:gid table|reregistration|lid change|sm change|pkey)", "note",
         "The fabric's addresses changed while in use: a subnet manager or a link came back.",
         "the kernel log and the subnet manager's log at that time"),
    _row(r"async(?:hronous)? (?:fatal )?event", "unknown", "A network card reported an event while in use.",
         "read the event's name in the line and the kernel log at that time"),
    _row(r"failed to open libibverbs", "note", "The verbs library cannot be loaded: no InfiniBand and no RoCE.",
         "install rdma-core (libibverbs1) in the image", info=True),
    _row(r"net/ib ?: ?no device found", "note", "NCCL found no usable RDMA device.",
         "ibv_devinfo must list active ports where the job runs", "containers: pass /dev/infiniband in",
         "check NCCL_IB_HCA", info=True),
    _row(r"ibv_open_device failed|unable to open device", "wrong", "A network device is visible but cannot be opened.",
         "containers: pass all of /dev/infiniband in", "NCCL_IB_HCA names only the devices this job may use"),
    _row(r"ibv_\w+ failed", "wrong", "A call to the network card's driver failed.",
         "ibv_devinfo and the kernel log of that host", "ulimit -l must be unlimited"),
    # finding each other
    _row(r"bootstrap ?: ?no (?:socket|usable)|no (?:socket|usable listening) interface found", "wrong",
         "No network interface to meet over.", "NCCL_SOCKET_IFNAME must name an interface of every node",
         info=True),
    _row(r"mismatch.*address family|no route to host|network is unreachable", "wrong",
         "Hosts cannot reach each other for the set-up.", "NCCL_SOCKET_IFNAME must name the same network on every node",
         "check the firewall between the nodes", info=True),
    _row(r"connect returned .*retrying", "note", "A connection was refused at first, and tried again.", info=True),
    _row(r"connect\w* .*(?:refused|timed out)|connection refused", "wrong",
         "A rank could not connect to another during the set-up.", "was the other rank started, and is it still alive?",
         "check the firewall and NCCL_SOCKET_IFNAME", info=True),
    _row(r"connection closed by|connection reset|broken pipe|remote process exited|ncclRemoteError"
         r"|proxy call to rank|service thread|proxy thread error", "unknown",
         "Another rank went away: this follows from an error elsewhere.",
         "find the first rank that failed, in its own log", info=True),
    # inside the node
    _row(r"p2p is disabled between.*nvlink", "wrong",
         "Two GPUs that share NVLink refuse peer access: a hardware fault.",
         "nvidia-smi nvlink --status and nvidia-smi topo -p2p n", "reset or drain the node", info=True),
    _row(r"could not enable p2p between", "note", "Peer access between two GPUs could not be enabled.",
         "nvidia-smi topo -p2p r", "virtual machines and ACS can forbid it", info=True),
    _row(r"peer access is not supported|cuda failure.*peer", "wrong", "Peer access between GPUs failed.",
         "nvidia-smi topo -p2p r", "turn off ACS, or NCCL_P2P_DISABLE=1 to go on without"),
    _row(r"nvls|multicast|nvlink sharp", "wrong", "NVLink SHARP could not be set up.",
         "nvidia-fabricmanager must run and match the driver: nvidia-smi -q | grep -A 4 Fabric",
         "NCCL_NVLS_ENABLE=0 goes on without, at ring speed"),
    _row(r"mnnvl|fabric uuid|imex", "wrong", "NVLink between nodes could not be set up.",
         "nvidia-imex must run on every node of the rack: nvidia-imex-ctl -N"),
    _row(r"sharp", "wrong", "In-network reduction (SHARP) could not be set up.",
         "check the aggregation manager and sharpd", "NCCL_COLLNET_ENABLE=0 goes on without"),
    _row(r"could not find a path for pattern", "wrong",
         "NCCL found no good path between the GPUs and fell back to a plain order.",
         "unset NCCL_P2P_LEVEL, NCCL_P2P_DISABLE and NCCL_TOPO_FILE", "NCCL_DEBUG_SUBSYS=GRAPH shows what it saw"),
    _row(r"cuda failure", "wrong", "A CUDA call failed inside NCCL: often the program's own error surfacing here.",
         "CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer name the kernel", "dmesg | grep Xid tells a hardware fault"),
    # the host
    _row(r"iommu=pt", "wrong", "The kernel runs with a translating IOMMU: RDMA to GPU memory is slow or hangs.",
         "boot with iommu=pt"),
    _row(r"numa (?:auto )?balancing", "wrong", "The kernel moves memory between NUMA nodes while it is in use.",
         "sysctl kernel.numa_balancing=0"),
    # settings
    _row(r"no algorithm/protocol available", "wrong", "NCCL_ALGO or NCCL_PROTO forbids every way to run an operation.",
         "unset NCCL_ALGO and NCCL_PROTO"),
    _row(r"(?:invalid|unknown|unrecognized) (?:value|option|argument|element|token).*|invalid config", "wrong",
         "A setting or an argument is not valid.", "read the line for its name, and check its spelling"),
    # libfabric
    _row(r"net/ofi.*(?:only efa provider|no eligible|not found|failed|unable|error|not register memory)", "wrong",
         "The libfabric plugin failed.", "fi_info -p efa must list the devices",
         "match the plugin's and the driver's versions"),
    _row(r"failed to initialize net plugin", "note", "A network plugin did not start; NCCL went on to the next one.",
         "NCCL_NET names the one you want, and then a failure is an error", info=True),
    # the application
    _row(r"did not finish in \d+ s", "wrong", "A collective hung until the watchdog's time-out.",
         "find the rank that never entered it: TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and the flight recorder",
         "look for the first error of any rank before this time", info=True),
    _row(r"the application got an nccl error", "wrong", "The application stopped on an NCCL error.",
         "the first warning above it names the cause", info=True),
    _row(r"nccl returned error", "note",
         "An error passed through NCCL's code; the first warning names the cause.", info=True),
)  # fmt: skip


def advice_for(text: str, level: str) -> Advice | None:
    """The row for a message of `level` (WARN, INFO or APP), or None."""
    return next((row for row in TABLE if level in row.levels and row.pattern.search(text)), None)
