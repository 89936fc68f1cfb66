"""The reader of NCCL's log says what NCCL did, and is not misled by how the log was made or cut."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports import commands
from reports.nccl_log import Expect, LogReport, read_log
from reports.nccl_log import command as nccl_log
from reports.nccl_log.connections import parse
from reports.nccl_log.facts import NetPath
from reports.nccl_log.reader import Reader
from reports.nccl_log.stream import LINE_BYTES, opened

FIXTURES = Path(__file__).parent / "fixtures" / "nccl"
HEALTHY = FIXTURES / "v2.19.4-ib-h100-2x8.log"
EVERY = sorted(FIXTURES.glob("*.log"))


def read(*names: str, **expect) -> LogReport:
    return read_log([str(FIXTURES / name) for name in names], expect=Expect(**expect))


def read_text(tmp_path: Path, text: str | bytes, **expect) -> LogReport:
    path = tmp_path / "nccl.log"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_log([str(path)], expect=Expect(**expect))


def said(report: LogReport, severity: str) -> str:
    return "\n".join(f"{f.check}: {f.sentence}" for f in report.findings if f.severity == severity)


# --- real forms, version by version ----------------------------------------------------------------------


def test_a_healthy_h100_job_is_healthy_and_every_check_says_why():
    report = read(HEALTHY.name)
    assert report.exit_code == 0
    assert report.versions == ("2.19.4+cuda12.2",)
    assert report.num_ranks == 16
    assert {f.check for f in report.findings if f.severity == "fine"} == {
        "complete", "version", "network", "gpudirect", "hcas", "node", "messages",
    }  # fmt: skip
    assert [node.hcas_used for node in report.nodes] == [tuple(f"mlx5_{i}" for i in range(8))] * 2
    assert {node.gdr for node in report.nodes} == {"on"}
    assert [rank.rank for rank in report.ranks] == list(range(16))
    assert report.ranks[9].host == "h100-n02"
    assert report.ranks[9].gpu == 1
    assert report.ranks[9].channels == 16
    assert report.ranks[0].transports == {"NET/IB": 4, "P2P/IPC": 14}
    assert any("NVLSTREE/SIMPLE, up to 16 channels" in line for line in report.algorithms)


@pytest.mark.parametrize(
    ("name", "exit_code", "words"),
    [
        ("v2.19.4-ib-h100-half-the-cards.log", 1, "hcas: h100-n01, h100-n02: only 4 of 8 devices (idle: mlx5_4"),
        ("v2.19.4-ib-h100-one-node-without-gdr.log", 1, "off on 32 of 64 network channels: mlx5_0 on h100-n02, mlx5_1"),
        ("v2.19.4-ib-h100-stuck.log", 1, "1 of 16 ranks started the set-up and never finished it: 11 on h100-n02"),
        ("v2.19.4-two-versions.log", 1, "version ran: 2.19.3+cuda12.2 (h100-n02), 2.19.4+cuda12.2 (h100-n01)"),
        ("v2.28.9-roce-no-gdr.log", 1, "GPUDirect RDMA is off on 16 of 16 network channels: roceP2p1s0f1 on box-4a"),
        ("v2.10.3-tcp-no-libibverbs.log", 1, "Traffic between nodes runs over Socket (TCP sockets), not over RDMA"),
        ("v2.7.8-shared-memory.log", 1, "node: 8 channels between GPUs of a node go through host memory (SHM)"),
        ("v2.21.5-link-died.log", 1, "A network port went down while in use"),
        ("rccl-2.22.3-mi300x.log", 1, "The kernel runs with a translating IOMMU"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_plain_words(name, exit_code, words):
    report = read(name)
    assert report.exit_code == exit_code
    assert words in said(report, "wrong")
    wrong = [f for f in report.findings if f.severity == "wrong"]
    assert all(f.tries for f in wrong)


def test_a_crash_is_told_from_its_consequences():
    report = read("v2.21.5-link-died.log")
    assert "messages: A peer did not answer on the network" in said(report, "wrong")
    assert "ALLREDUCE did not finish in 600 s [rank 0]" in said(report, "wrong")
    assert "Another rank went away" in said(report, "unknown")
    (gone,) = [f for f in report.findings if f.sentence.startswith("A network port went down")]
    line = (FIXTURES / "v2.21.5-link-died.log").read_text().split("\n")[int(gone.evidence[0].rpartition(":")[2]) - 1]
    assert "port error" in line


@pytest.mark.parametrize("name", ["v2.4.8-ib-2x2.log", "v2.8.3-efa-2x8.log"])
def test_old_logs_do_not_show_nvlink_and_the_reader_says_so(name):
    report = read(name)
    assert report.exit_code == 3
    assert "does not show whether over NVLink or PCIe" in said(report, "unknown")
    assert read(name, nvlink=False).exit_code == 0


def test_the_network_is_named():
    assert "NET/AWS Libfabric (EFA (libfabric)) carries" in said(read("v2.8.3-efa-2x8.log"), "fine")
    assert "NET/IB (RoCE) carries" in said(read("v2.28.9-roce-no-gdr.log"), "fine")
    assert "NET/IBext_v7 (InfiniBand) carries" in said(read("v2.20.5-ib-h100-sharp.log"), "fine")
    assert "SHARP) carries channels" in said(read("v2.20.5-ib-h100-sharp.log"), "note")


def test_one_nvlink_domain_over_two_hosts_needs_no_network():
    report = read("v2.27.3-gb200-one-nvlink-domain.log")
    assert report.exit_code == 0
    assert "one NVLink domain" in said(report, "fine")


def test_expectations_change_the_verdict():
    assert read(HEALTHY.name, network="roce").exit_code == 1
    assert read(HEALTHY.name, network="ib").exit_code == 0
    assert read(HEALTHY.name, hcas=9).exit_code == 1
    assert read("v2.19.4-ib-h100-half-the-cards.log", hcas=4).exit_code == 0
    assert read("v2.10.3-tcp-no-libibverbs.log", network="socket", nvlink=False).exit_code == 0
    with pytest.raises(ValueError, match="none of rdma"):
        Expect(network="token ring")


# --- what a log can be like -------------------------------------------------------------------------------


def test_half_of_the_ranks_cannot_be_called_healthy(tmp_path):
    lines = HEALTHY.read_text().split("\n")
    report = read_text(tmp_path, "\n".join(line for line in lines if line.startswith("h100-n01")) + "\n")
    assert report.exit_code == 3
    assert "8 of 16 ranks are in the log; missing: 8, 9, 10, 11, 12, 13 and 2 more" in said(report, "unknown")


def test_one_file_per_process_is_one_job(tmp_path):
    by_pid: dict[str, list[str]] = {}
    for line in HEALTHY.read_text().splitlines():
        by_pid.setdefault(":".join(line.split(":")[:2]), []).append(line)
    paths = []
    for pid, lines in by_pid.items():
        path = tmp_path / f"{pid}.log"
        path.write_text("\n".join(lines) + "\n")
        paths.append(str(path))
    assert len(paths) == 16
    report = read_log(paths)
    assert report.exit_code == 0
    assert report.nodes == read_log([str(HEALTHY)]).nodes


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,{r}]<stdout>:",
        "{r}: ",
        "(Worker pid={r}) ",
        "[2026-05-05 06:16:4{r}] ",
        "\x1b[36mpod-{r} | \x1b[0m",
        "[{r}] ",
    ],
)
def test_what_launchers_put_before_a_line_changes_nothing(tmp_path, prefix):
    lines = [prefix.format(r=n % 10) + line for n, line in enumerate(HEALTHY.read_text().splitlines())]
    report = read_text(tmp_path, "\n".join(lines) + "\n")
    assert report.exit_code == 0
    assert [node.host for node in report.nodes] == ["h100-n01", "h100-n02"]


def test_windows_line_ends_and_gzip(tmp_path):
    assert read_text(tmp_path, HEALTHY.read_bytes().replace(b"\n", b"\r\n")).exit_code == 0
    assert read_text(tmp_path, gzip.compress(HEALTHY.read_bytes())).exit_code == 0


def test_a_cut_file_is_reported(tmp_path):
    whole = HEALTHY.read_bytes()
    report = read_text(tmp_path, whole[: len(whole) // 2])
    assert report.exit_code == 3
    assert "its last line has no end" in said(report, "unknown")
    report = read_text(tmp_path, gzip.compress(whole)[:-700])
    assert report.exit_code == 3
    assert "its gzip stream is broken" in said(report, "unknown")
    assert report.num_nccl_lines > 100
    two_members = gzip.compress(whole[:20_000]) + gzip.compress(whole[20_000:])
    assert read_text(tmp_path, two_members).exit_code == 0


def test_two_ranks_that_write_into_one_line_lose_only_one_text(tmp_path):
    lines = HEALTHY.read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if "via P2P/IPC" in line)
    lines[at] = lines[at][:60] + lines.pop(at + 1)
    report = read_text(tmp_path, "\n".join(lines) + "\n")
    assert report.exit_code == 0
    assert "1 lines hold the text of two ranks" in said(report, "note")
    assert sum(sum(rank.transports.values()) for rank in report.ranks) == 224 + 64 - 1


def test_nothing_to_read_is_not_healthy(tmp_path):
    assert read_log([]).exit_code == 3
    assert read_text(tmp_path, "").exit_code == 3
    assert "no NCCL line" in said(read_text(tmp_path, "epoch 1 loss 2.1\n"), "unknown")


def test_a_warning_nobody_knows_is_never_dropped(tmp_path):
    text = HEALTHY.read_text() + "h100-n01:3980:4050 [0] misc/new.cc:7 NCCL WARN The flux capacitor is cold\n"
    report = read_text(tmp_path, text)
    assert report.exit_code == 3
    assert "The flux capacitor is cold [h100-n01]" in said(report, "unknown")


def test_gpus_of_one_node_over_the_network_are_wrong(tmp_path):
    text = HEALTHY.read_text().replace(
        "Channel 00/0 : 2[2] -> 1[1] via P2P/IPC", "Channel 00/0 : 2[2] -> 1[1] [send] via NET/IB/1/GDRDMA"
    )
    report = read_text(tmp_path, text)
    assert report.exit_code == 1
    assert "1 pairs of GPUs in one node talk over the network" in said(report, "wrong")


def test_paths_over_pcie_are_wrong_where_nvlink_should_be(tmp_path):
    text = (
        HEALTHY.read_text()
        .replace("NVLS multicast support is ", "NVLS multicast support is not ")
        .replace("NVL[", "PCI[")
    )
    assert "over PCIe (SYS), not NVLink" in said(
        read_text(tmp_path, text.replace("type NVL/PIX", "type SYS/PIX")), "wrong"
    )


def test_nvlink_sharp_on_some_gpus_only_is_wrong(tmp_path):
    text = HEALTHY.read_text().replace("is available on dev 3", "is not available on dev 3")
    report = read_text(tmp_path, text)
    assert "available on 14 GPUs and not on 2, on h100-n01, h100-n02" in said(report, "wrong")


def test_a_node_that_lost_a_card_is_named(tmp_path):
    lines = [
        line.replace(" [7]mlx5_7:1/IB", "") if line.startswith("h100-n02") else line
        for line in HEALTHY.read_text().replace("NET/IB/7", "NET/IB/6").splitlines()
    ]
    report = read_text(tmp_path, "\n".join(lines) + "\n")
    assert report.exit_code == 1
    assert "h100-n02: NCCL lists fewer network devices there than the 8 of other nodes" in said(report, "wrong")
    assert "h100-n01: only 7 of 8 devices (idle: mlx5_7)" in said(report, "wrong")


def test_cards_beyond_the_gpus_are_only_mentioned(tmp_path):
    storage = " [8]mlx5_8:1/IB [9]mlx5_9:1/RoCE [RO]"
    report = read_text(tmp_path, HEALTHY.read_text().replace(" [RO]", storage))
    assert report.exit_code == 0
    assert "h100-n01, h100-n02: mlx5_8 of the same kind carry no channel" in said(report, "note")


def test_announced_only_is_told_from_seen(tmp_path):
    """Some versions print no channel lines: what NCCL announces counts, which devices carry traffic stays unknown."""
    lines = [line for line in HEALTHY.read_text().splitlines() if " via " not in line]
    report = read_text(tmp_path, "\n".join(lines) + "\n")
    assert report.exit_code == 3
    assert "is announced for the traffic between nodes" in said(report, "fine")
    assert "does not show which network devices carry channels" in said(report, "unknown")
    socket = [line.replace("Using network IB", "Using network Socket") for line in lines]
    assert read_text(tmp_path, "\n".join(socket) + "\n").exit_code == 1


def test_two_ports_merged_into_one_device_count_as_both(tmp_path):
    listed = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(8))
    merged = " ".join(f"[{i}]={{[{2 * i}] mlx5_{2 * i}:1/IB, [{2 * i + 1}] mlx5_{2 * i + 1}:1/IB}}" for i in range(4))
    text = HEALTHY.read_text()
    assert listed in text
    for device in range(4, 8):
        text = text.replace(f"NET/IB/{device}", f"NET/IB/{device - 4}")
    report = read_text(tmp_path, text.replace(listed, merged))
    assert report.exit_code == 0
    assert "Every node uses 8 network devices" in said(report, "fine")
    assert report.nodes[0].hcas_used[0] == "mlx5_0+mlx5_1"


def test_a_warning_whose_origin_has_blanks_keeps_its_host(tmp_path):
    origin = "[2026-01-01 12:08:32] h100-n02:3983:4101 [3] int handle(fid_cq*, uint16_t):46"
    line = f"{origin} NCCL WARN NET/OFI Request 0x7f completed with error. RC: 103\n"
    report = read_text(tmp_path, HEALTHY.read_text() + line)
    assert "The libfabric plugin failed." in said(report, "wrong")
    assert "[h100-n02]" in said(report, "wrong")


def test_a_plugin_nobody_knows_is_not_judged(tmp_path):
    text = (
        HEALTHY.read_text()
        .replace("NET/IB/", "NET/Quux_v1/")
        .replace("/GDRDMA", "")
        .replace("network IB", "network Quux")
    )
    report = read_text(tmp_path, text)
    assert report.exit_code == 3
    assert "runs over Quux_v1 (a plugin), which this reader cannot place" in said(report, "unknown")
    assert read_text(tmp_path, text, network="any", hcas=8).exit_code == 0


def test_a_first_refusal_that_was_tried_again_is_no_fault(tmp_path):
    line = "h100-n01:3980:4050 [0] NCCL INFO Call to connect returned Connection refused, retrying\n"
    assert read_text(tmp_path, line + HEALTHY.read_text()).exit_code == 0
    assert read_text(tmp_path, line.replace(", retrying", "") + HEALTHY.read_text()).exit_code == 1


def test_settings_that_matter_are_named(tmp_path):
    text = "h100-n01:3980:4050 [0] NCCL INFO NCCL_ALGO set by environment to Ring.\n" + HEALTHY.read_text()
    report = read_text(tmp_path, text + "h100-n02:3980:4050 [0] NCCL INFO NCCL_IB_TC set by environment to 106\n")
    assert "settings: NCCL_ALGO=Ring is set: the algorithm is pinned" in said(report, "note")
    assert report.exit_code == 0


def test_evidence_names_the_line(tmp_path):
    filler = "step 1 loss 2.0\n" * 200_000  # more than one block, so that numbers run across blocks
    report = read_text(tmp_path, filler + HEALTHY.read_text() + filler + "n:1:2 [0] x.cc:1 NCCL WARN odd\n")
    (odd,) = [f for f in report.findings if "odd" in f.sentence]
    assert odd.evidence[0].endswith(f":{400_001 + HEALTHY.read_text().count(chr(10))}")
    assert report.num_lines == 400_001 + HEALTHY.read_text().count("\n")


def test_a_line_without_end_costs_no_memory(tmp_path):
    path = tmp_path / "endless"
    path.write_bytes(b"x" * (5 * LINE_BYTES) + b"\n" + HEALTHY.read_bytes())
    with opened(str(path)) as source:
        assert max(len(block) for block in source) < 3 * LINE_BYTES
    assert read_log([str(path)]).exit_code == 0


def test_tables_are_bounded_whatever_the_log_invents():
    reader = Reader()
    for number in range(0, 60_000, 1000):
        block = b"\n".join(
            b"h%d:%d:1 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[0] via NET/N%d/%d" % ((n,) * 6)
            for n in range(number, number + 1000)
        )
        reader.feed(block, 1)
    facts = reader.finish()
    assert len(facts.gpus) <= (1 << 14) + 1
    assert reader.num_lines == 60_000


# --- forms of single lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tail", "transport", "path"),
    [
        (b": 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM", None),
        (b": 0[1a000] -> 1[3d000] via P2P/direct pointer/read", "P2P/direct", None),
        (b": 0[0] -> 3[3] via P2P/indirect/1[1]", "P2P/indirect", None),
        (b": 4[0] -> 3[3] via P2P/MNNVL", "P2P/MNNVL", None),
        (b": 0[5] -> 1[6] via P2P/IPC comm 0x5571 nRanks 16", "P2P/IPC", None),
        (b": 0[0] -> 1[6] via SHM/direct/direct", "SHM", None),
        (b" : 2 -> 3 [send] via NET/Socket/0", "NET/Socket", NetPath("Socket", 0, "send", False)),
        (b": 3[3] -> 8[0] [send] via NET/IB/4(2)/GDRDMA(PCI)/Shared", "NET/IB", NetPath("IB", 4, "send", True)),
        (b": 6[6] -> 38[6] [receive] via NET/IBext_v8/1", "NET/IBext_v8", NetPath("IBext_v8", 1, "receive", False)),
        (b"15[a01d0] -> 6[a01c0] [receive] via NET/OFI/3/GDRDMA", "NET/OFI", NetPath("OFI", 3, "receive", True)),
    ],
)  # fmt: skip
def test_connections(tail, transport, path):
    connection = parse(tail)
    assert connection is not None
    assert connection.transport == transport
    assert connection.path == path


# --- the command -------------------------------------------------------------------------------------------


def test_the_command_prints_findings_and_returns_the_code(capsys):
    assert nccl_log.main([str(HEALTHY)]) == 0
    out = capsys.readouterr().out
    assert "16 ranks on 2 hosts, NCCL 2.19.4+cuda12.2" in out
    assert out.rstrip().endswith("Healthy.")
    assert nccl_log.main([str(FIXTURES / "v2.7.8-shared-memory.log"), "--no-nvlink"]) == 0
    assert nccl_log.main([str(HEALTHY), "--hcas", "9"]) == 1


def test_the_command_is_one_of_reports():
    assert commands.main(["nccl-log", str(HEALTHY), "--network", "ib"]) == 0
    assert commands.main(["nccl-log", str(HEALTHY), "--network", "pigeon"]) == 4


def test_the_command_writes_json(capsys):
    assert nccl_log.main([str(FIXTURES / "v2.28.9-roce-no-gdr.log"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["exit_code"] == 1
    assert report["ranks"][1]["gdr"] is False


def test_a_file_that_is_not_there_cannot_be_told(capsys):
    assert nccl_log.main(["no-such-file"]) == 3
    assert "no-such-file" in capsys.readouterr().err


# --- whatever comes in, nothing raises ---------------------------------------------------------------------


def digest(data: bytes, cut: int = 1 << 30) -> LogReport:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data[:cut])
        file.flush()
        return read_log([file.name])


@settings(max_examples=60, deadline=None)
@given(path=st.sampled_from(EVERY), cut=st.floats(0, 1))
def test_a_log_cut_anywhere_never_raises(path, cut):
    data = path.read_bytes()
    report = digest(data, int(cut * len(data)))
    assert report.exit_code in (0, 1, 3)
    if report.exit_code == 0:
        assert read_log([str(path)]).exit_code == 0


@settings(max_examples=30, deadline=None)
@given(path=st.sampled_from(EVERY), order=st.randoms(use_true_random=False))
def test_a_shuffled_log_says_the_same_about_transports(path, order):
    lines = path.read_bytes().splitlines()
    order.shuffle(lines)
    shuffled, straight = digest(b"\n".join(lines) + b"\n"), read_log([str(path)])
    assert [r.transports for r in shuffled.ranks] == [r.transports for r in straight.ranks]
    assert shuffled.versions == straight.versions


@settings(max_examples=60, deadline=None)
@given(path=st.sampled_from(EVERY), edits=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=40)), max_size=20))
def test_a_log_with_random_bytes_in_it_never_raises(path, edits):
    data = bytearray(path.read_bytes())
    for where, junk in edits:
        at = int(where * len(data))
        data[at : at + len(junk)] = junk
    digest(bytes(data))


PIECES = [
    b" NCCL ", b"INFO ", b"WARN ", b"Channel 00/0 : ", b"0[0] -> 1[1]", b" via ", b"NET/IB/0/GDRDMA", b"P2P/IPC", b"\n",
    b"h:1:2 [0]", b"comm 0x1 rank 0 nranks 2 ", b"commId 0x2 - Init COMPLETE", b"Trees [0] ", b"Using network IB",
    b"NET/IB : Using [0]m:1/IB", b"AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..99999999999999999999}",
    b"NCCL version 2.4.8+cuda10.1", b"99999999999999999999", b"Ring 00", b": ", b"\x00", b"\xff", b"16 coll channels",
    b"Pattern 4, nChannels 8, type NVL/PIX", b"NVLS multicast support is ", b"-> 2", b"nNodes 2 MNNVL 1",
    b"Made virtual device [0] name=", b"{[0] mlx5_0:1/IB}",
    b"Watchdog caught collective operation timeout OpType=X Timeout(ms)=1",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=8)), max_size=60))
def test_bytes_that_look_like_a_log_never_raise(parts):
    report = digest(b"".join(parts))
    assert report.exit_code in (1, 3) or "complete" in {f.check for f in report.findings}


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=4000))
def test_random_bytes_never_raise(data):
    assert digest(data).exit_code in (1, 3)


@settings(max_examples=40, deadline=None)
@given(path=st.sampled_from(EVERY), sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=8))
def test_where_blocks_end_changes_nothing(path, sizes):
    """Both ways of reading a block, and any cut between blocks, give the same facts."""
    lines = path.read_bytes().rstrip(b"\n").split(b"\n")
    whole, parts = Reader(), Reader()
    whole.feed(b"\n".join(lines), 1)
    at, turn = 0, 0
    while at < len(lines):
        count = sizes[turn % len(sizes)] % 97 + 1
        parts.feed(b"\n".join(lines[at : at + count]), at + 1)
        at, turn = at + count, turn + 1
    one, other = whole.finish(), parts.finish()
    assert whole.num_lines == parts.num_lines == len(lines)
    assert {k: {n: (s.count, s.places) for n, s in g.transports.items()} for k, g in one.gpus.items()} == {
        k: {n: (s.count, s.places) for n, s in g.transports.items()} for k, g in other.gpus.items()
    }
    assert one.versions.keys() == other.versions.keys()
    assert sorted((r.seen.places, r.text, r.seen.count) for r in one.remarks.values()) == sorted(
        (r.seen.places, r.text, r.seen.count) for r in other.remarks.values()
    )
    assert {k: (a.smallest, a.largest, a.seen.count) for k, a in one.algorithms.items()} == {
        k: (a.smallest, a.largest, a.seen.count) for k, a in other.algorithms.items()
    }
