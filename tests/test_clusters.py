"""Cluster files: what loads, and that whatever is wrong is refused in one line that names the cure."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from benchmarks.inventory import InstalledGpu
from clusters import hardware
from clusters.limits import Limit, Waiver
from clusters.loader import FOLDER, ClusterError, check_metrics, check_settings, known, load
from suites.needs import checks
from suites.plan import make_plan, metrics

LIMIT = """
[limits.exact]
metric = "gemm.error"
unit = "1"
ceiling = 1.0
source = "definition: in units of the dtype's bound"
"""


@pytest.fixture
def refused(tmp_path):
    """Write a cluster file, load it, return the one line that refuses it."""

    def message(text: str) -> str:
        path = tmp_path / "site.toml"
        path.write_text(text)
        with pytest.raises(ClusterError) as caught:
            load(str(path))
        line = str(caught.value)
        assert "\n" not in line
        assert line.startswith(str(path))
        return line

    return message


def loaded(tmp_path: Path, text: str):
    path = tmp_path / "site.toml"
    path.write_text(text)
    return load(str(path))


# -- what loads ------------------------------------------------------------------------------------------------------


def test_a_file_becomes_a_cluster(tmp_path):
    cluster = loaded(
        tmp_path,
        """
        description = "two racks"
        nodes = 4
        gpus_per_node = 8
        gpu = "h100-sxm"
        [network]
        kind = "infiniband"
        nics_per_node = 8
        nic_rate = 50e9
        source = "datasheet: ConnectX-7, 400 Gb/s"
        [collectives]
        sizes = [8, 1024]
        [limits.floor]
        metric = "collectives.*.busbw"
        unit = "B/s"
        floor = 3e11
        source = "contract 17"
        where = { dtype = "bf16" }
        scope = { nodes = 4 }
        mandatory = false
        date = 2026-11-30
        [waivers.W1]
        limit = "floor"
        approver = "J. Doe"
        reason = "cable ordered"
        expires = 2026-12-24
        subject = "node7*"
        [not_applicable]
        "links.latency" = "no second node yet"
        """,
    )
    assert (cluster.name, cluster.nodes, cluster.ranks_per_node, cluster.gpus_per_node) == ("site", 4, 8, 8)
    assert cluster.gpu is not None
    assert cluster.gpu.bf16_flops == 989e12
    assert cluster.network.node_rate == 400e9
    assert cluster.setting("collectives", "sizes", ()) == (8, 1024)
    assert cluster.setting("collectives", "dtype", "fp32") == "fp32"
    assert cluster.limits == (
        Limit(
            name="floor", metric="collectives.*.busbw", unit="B/s", floor=3e11, source="contract 17",
            where={"dtype": "bf16"}, scope={"nodes": 4}, mandatory=False, date="2026-11-30",
        ),
    )  # fmt: skip
    assert cluster.waivers[0].expires == date(2026, 12, 24)
    assert cluster.exemptions[0].reason == "no second node yet"


def test_the_hash_is_of_the_bytes_and_the_text_is_kept(tmp_path):
    one, other = loaded(tmp_path, LIMIT), loaded(tmp_path, LIMIT + "# a word more\n")
    assert one.sha256 != other.sha256
    assert other.text.endswith("# a word more\n")


def test_the_name_is_the_files_unless_it_says_another(tmp_path):
    assert loaded(tmp_path, "").name == "site"
    assert loaded(tmp_path, 'name = "rack7"').name == "rack7"


@pytest.mark.parametrize("name", known())
def test_every_shipped_file_loads_by_name_and_dates_every_limit(name):
    cluster = load(name)
    assert cluster.name == name
    assert cluster.description
    for limit in cluster.limits:
        assert limit.date, f"{name}: {limit.name} has no date"
        assert re.match(
            r"(definition|reasoned|derived|measured|datasheet|contract|published|vendor)\b", limit.source
        ), f"{name}: {limit.name}: say what kind of source it is: {limit.source}"


def test_local_demands_no_absolute_speed():
    """Nobody knows this machine: counts, shares and ratios, and bounds that nothing passes."""
    assert [limit.name for limit in load("local").limits if limit.unit != "1" and not limit.physical] == []


# -- what does not ---------------------------------------------------------------------------------------------------


def test_an_unknown_name_lists_the_known_and_the_nearest():
    with pytest.raises(
        ClusterError, match=r"unknown cluster 'locall' \(do you mean 'local'\?\); known: .*local"
    ) as caught:
        load("locall")
    assert "hardware" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ClusterError, match=r"no cluster file .*absent.toml: give a file, or a known name: .*local"):
        load(str(tmp_path / "absent.toml"))


def test_a_folder_and_binary_bytes(tmp_path):
    (tmp_path / "dir.toml").mkdir()
    with pytest.raises(ClusterError, match="no cluster file"):
        load(str(tmp_path / "dir.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"nodes = 1\n# \xff\xfe\n")
    with pytest.raises(ClusterError, match="line 2 is not UTF-8"):
        load(str(tmp_path / "bytes.toml"))


WRONG = {
    # what is wrong -> (the file, what the line must say)
    "malformed": ("nodes = 1\nnodes 2\n", r"not valid TOML.*line 2"),
    "key twice": ("nodes = 1\nnodes = 2\n", r"not valid TOML.*line 2"),
    "limit twice": (LIMIT + LIMIT, r"not valid TOML.*exact.*twice"),
    "unknown key": ("nodez = 2", r"unknown key 'nodez' \(do you mean 'nodes'"),
    "unknown table": ("[limit.x]\nunit = '1'", r"unknown key 'limit' \(do you mean 'limits'"),
    "unknown limit key": (LIMIT + "cieling = 2.0", r"\[limits.exact\].*'cieling' \(do you mean 'ceiling'"),
    "unknown network key": ("[network]\nkin = 'roce'", r"\[network\].*'kin' \(do you mean 'kind'"),
    "table for a value": ("[limits]\nexact = 1", r"write \[limits.exact\]"),
    "value for a table": ("limits = 1", r"write \[limits\]"),
    "no unit": (LIMIT.replace('unit = "1"', ""), r"\[limits.exact\]: no unit: add one, such as"),
    "no source": (re.sub("source.*", "", LIMIT), r"\[limits.exact\]: no source: add one, such as"),
    "no metric": (re.sub("metric.*", "", LIMIT), r"\[limits.exact\]: no metric"),
    "no bound": (LIMIT.replace("ceiling = 1.0", ""), r"no bound: give exactly one of floor, ceiling, equal"),
    "two bounds": (LIMIT + "floor = 0.5", r"floor and ceiling: give exactly one"),
    "NaN": (LIMIT.replace("1.0", "nan"), r"ceiling = nan is no number to compare with"),
    "infinity": (LIMIT.replace("1.0", "inf"), r"ceiling = inf is no number"),
    "text bound": (LIMIT.replace("1.0", "'1.0'"), r"ceiling = '1.0' must be a number"),
    "true bound": (LIMIT.replace("1.0", "true"), r"ceiling = True must be a number"),
    "NaN setting": ("[gemm]\nshare = nan", r"\[gemm\]: share = nan"),
    "nested setting": ("[gemm]\nshapes = [[1]]", r"\[gemm\]: shapes = \[\[1\]\] must be a plain value"),
    "unknown of": (LIMIT + "of = 'peer'", r"of = \"peer\" \(do you mean 'peers'"),
    "ratio to nothing": (LIMIT + "of = 'metric'", r"without ratio_to: name the other metric"),
    "ratio_to alone": (LIMIT + "ratio_to = 'gemm.flops'", r"ratio_to needs of = \"metric\""),
    "scale alone": (LIMIT + "scale = 2.0", r"scale needs of = \"metric\""),
    "scale zero": (LIMIT + "of = 'metric'\nratio_to = 'x'\nscale = 0", r"scale = 0 must be above zero"),
    "ratio with a unit": (LIMIT.replace('"1"', '"B/s"') + "of = 'peers'", r"unit = \"B/s\" of a ratio.*write"),
    "tolerance": (LIMIT + "tolerance = 0.1", r"tolerance = 0.1 goes with equal"),
    "tolerance of everything": (
        LIMIT.replace("ceiling = 1.0", "equal = 2\ntolerance = 2"), r"tolerance = 2 of equal = 2 lets everything pass",
    ),
    "negative tolerance": (LIMIT.replace("ceiling = 1.0", "equal = 2\ntolerance = -1"), r"tolerance = -1 .*negative"),
    "infinite tolerance": (LIMIT.replace("ceiling = 1.0", "equal = 2\ntolerance = inf"), r"tolerance = inf is no num"),
    "unknown GPU in a scope": (
        LIMIT + "scope = { sku = 'h100-sxm5' }", r"\[limits.exact\] scope: sku = \"h100-sxm5\" .*mean 'h100-sxm'",
    ),
    "unknown backend in a scope": (LIMIT + "scope = { backend = 'ncll' }", r"backend = \"ncll\" .*mean 'nccl'"),
    "a number as a scope's GPU": (LIMIT + "scope = { sku = 100 }", r"sku = 100 must be text"),
    "scope": (LIMIT + "scope = { node = 2 }", r"scope: unknown key 'node' \(do you mean 'nodes'"),
    "where": (LIMIT + "where = { bytes = [1, 2] }", r"where.bytes = \[1, 2\] must be one"),
    "limit date": (LIMIT + "date = 'yesterday'", r"date = 'yesterday' is no date: write date = 2026-12-31"),
    "mandatory": (LIMIT + "mandatory = 'yes'", r"mandatory = 'yes' must be true or false"),
    "unknown GPU": (
        "gpu = 'h100'\ngpus_per_node = 8", r"unknown GPU 'h100' \(do you mean .*known: .*h100-sxm.*hardware.toml",
    ),
    "GPUs without model": ("gpus_per_node = 8", r"gpus_per_node without gpu: name the model"),
    "model without GPUs": ("gpu = 'h100-sxm'", r"without gpus_per_node"),
    "zero ranks": ("ranks_per_node = 0", r"ranks_per_node = 0 must be at least 1"),
    "negative nodes": ("nodes = -3", r"nodes = -3 must be at least 1"),
    "zero GPUs": ("gpu = 'h100-sxm'\ngpus_per_node = 0", r"gpus_per_node = 0 must be at least 1"),
    "half a node": ("nodes = 1.5", r"nodes = 1.5 must be a whole number"),
    "more ranks than GPUs": (
        "gpu = 'h100-sxm'\ngpus_per_node = 8\nranks_per_node = 9", r"ranks_per_node = 9 .*more ranks than GPUs.*leave",
    ),
    "fewer ranks than GPUs": (
        "gpu = 'h100-sxm'\ngpus_per_node = 8\nranks_per_node = 4", r"some GPUs would not be tested",
    ),
    "half an NVLink domain": ("nodes = 5\nnodes_per_domain = 2", r"no whole number of NVLink domains"),
    "network kind": ("[network]\nkind = 'infinband'", r"do you mean 'infiniband'"),
    "network rate": (
        "[network]\nkind = 'roce'\nnics_per_node = 8\nsource = 'datasheet'", r"nic_rate = 0 must be above zero",
    ),
    "network source": ("[network]\nkind = 'roce'\nnics_per_node = 8\nnic_rate = 5e10", r"\[network\]: no source"),
    "oversubscription": (
        "[network]\nkind = 'roce'\noversubscription = 0.5", r"oversubscription = 0.5 must be 1 \(none\) or more",
    ),
    "waiver of nothing": (
        LIMIT + "[waivers.W]\nlimit = 'exat'\napprover = 'A'\nreason = 'r'\nexpires = 2026-12-31",
        r"\[waivers.W\]: waives unknown limit 'exat' \(do you mean 'exact'",
    ),
    "waiver date": (
        LIMIT + "[waivers.W]\nlimit = 'exact'\napprover = 'A'\nreason = 'r'\nexpires = '31.12.2026'",
        r"expires = '31.12.2026' is no date",
    ),
    "waiver without end": (LIMIT + "[waivers.W]\nlimit = 'exact'\napprover = 'A'\nreason = 'r'", r"no expires"),
    "waiver without approver": (
        LIMIT + "[waivers.W]\nlimit = 'exact'\nreason = 'r'\nexpires = 2026-12-31", r"no approver",
    ),
    "exemption without reason": ("[not_applicable]\n'links.*' = 'tbd'", r"links.* = \"tbd\" is a placeholder"),
    "name": ("name = ''", r"name = \"\" is a placeholder"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_refused(what, refused):
    text, expected = WRONG[what]
    assert re.search(expected, refused(text)), refused(text)


@pytest.mark.parametrize("source", ["", "  ", "tbd", "TBD", "Todo", "?", "n/a", "N/A.", "-", "..."])
def test_a_placeholder_is_no_source(source, refused):
    line = refused(re.sub("source = .*", f'source = "{source}"', LIMIT))
    assert re.search(r"\[limits.exact\]: source = .* is a placeholder: say it, such as", line)


# -- limits against metrics ------------------------------------------------------------------------------------------

METRICS = {
    "gemm.flops": ("FLOP/s", "higher"),
    "gemm.error": ("1", "lower"),
    "links.latency": ("s", "lower"),
    "links.bandwidth": ("B/s", "higher"),
    "links.wrong_elements": ("1", "equal"),
    "memory.copy.bandwidth": ("B/s", "higher"),
}


@pytest.mark.parametrize(
    ("metric", "unit", "bound", "expected"),
    [
        ("gemm.flop", "FLOP/s", "floor = 1", r"no benchmark emits 'gemm.flop' \(do you mean 'gemm.flops'"),
        ("nvlink.*", "B/s", "floor = 1", r"no benchmark emits 'nvlink.\*'; families: gemm, links, memory"),
        ("gemm.flops", "TFLOP/s", "floor = 1", r'unit = "TFLOP/s", but gemm.flops is in FLOP/s'),
        ("links.*", "B/s", "floor = 1", r"links.latency is in s"),
        ("links.latency", "s", "floor = 1e-6", r"a floor on links.latency, where lower is better: write ceiling"),
        ("gemm.flops", "FLOP/s", "ceiling = 1", r"a ceiling on gemm.flops, where higher is better: write floor"),
        ("links.wrong_elements", "1", "ceiling = 3", r"where equal is right: write equal"),
        ("links.latency", "1", 'floor = 1\nof = "peers"', r"a floor on links.latency"),
        ("links.bandwidth", "1", 'floor = 1\nof = "metric"\nratio_to = "gemm.flops"', r"a ratio needs two of one unit"),
        ("links.bandwidth", "1", 'floor = 1\nof = "metric"\nratio_to = "memory.copy"', r"ratio_to: no benchmark emits"),
        ("gemm.flops", "1", 'floor = 1\nof = "metric"\nratio_to = "gemm.flops"', r"gemm.flops as a ratio to itself"),
        ("*.bandwidth", "1", 'floor = 1\nof = "metric"\nratio_to = "links.bandwidth"', r"as a ratio to itself"),
        (
            "gemm.flops",
            "1",
            'floor = 1\nof = "metric"\nratio_to = "gemm.flops"\nwhere = { m = 8 }\nratio_where = { m = 8, k = 1 }',
            r"as a ratio to itself",
        ),
        ("gemm.flops", "FLOP/s", "floor = 0", r"floor = 0: no gemm.flops is below it"),
        ("links.bandwidth", "1", 'floor = -1\nof = "peers"', r"floor = -1: no links.bandwidth is below it"),
    ],
)
def test_a_limit_that_fits_no_metric_is_refused(metric, unit, bound, expected, tmp_path):
    cluster = loaded(tmp_path, f"[limits.l]\nmetric = '{metric}'\nunit = '{unit}'\n{bound}\nsource = 'contract'\n")
    with pytest.raises(ClusterError, match=expected) as caught:
        check_metrics(cluster, METRICS)
    assert str(caught.value).startswith(f"{cluster.path} [limits.l]")


@pytest.mark.parametrize(
    "limit",
    [
        'metric = "links.latency"\nunit = "s"\nceiling = 5e-6',
        'metric = "links.latency"\nunit = "s"\nfloor = 1e-8\nphysical = true',
        'metric = "*.bandwidth"\nunit = "B/s"\nceiling = 1e13\nphysical = true',
        'metric = "*.bandwidth"\nunit = "1"\nfloor = 0.3\nof = "peers"',
        'metric = "links.bandwidth"\nunit = "1"\nfloor = 0.3\nof = "metric"\nratio_to = "memory.copy.bandwidth"',
        'metric = "links.wrong_elements"\nunit = "1"\nequal = 0',
        'metric = "gemm.flops"\nunit = "1"\nfloor = 1\nof = "metric"\nratio_to = "gemm.flops"\n'
        'where = { dtype = "fp8" }\nratio_where = { dtype = "bf16" }',
    ],
)
def test_a_limit_that_fits_passes(limit, tmp_path):
    cluster = loaded(tmp_path, f"[limits.l]\n{limit}\nsource = 'contract'\n")
    check_metrics(cluster, METRICS)
    check_metrics(cluster, list(METRICS))


def test_an_exemption_of_nothing_is_refused(tmp_path):
    cluster = loaded(tmp_path, "[not_applicable]\n'link.*' = 'no second node'\n")
    with pytest.raises(ClusterError, match=r"\[not_applicable\]: no benchmark emits 'link.\*'"):
        check_metrics(cluster, METRICS)


def test_a_setting_that_nobody_reads_is_refused(tmp_path):
    cluster = loaded(tmp_path, "[gemm]\nshape = ['1024']\n")
    with pytest.raises(ClusterError, match=r"\[gemm\]: unknown key 'shape' \(do you mean 'shapes'"):
        check_settings(cluster, {"gemm": ("shapes", "dtypes")})
    check_settings(cluster, {"gemm": ("shape",), "links": ("bytes",)})


# -- shares of the hardware ------------------------------------------------------------------------------------------

H100 = """
nodes = {nodes}
gpus_per_node = 8
gpu = "h100-sxm"
[network]
kind = "infiniband"
nics_per_node = 8
nic_rate = 50e9
source = "datasheet"
[limits.share]
metric = "{metric}"
unit = "1"
floor = {floor}
of = "hardware"
source = "contract"
{more}
"""


def share(tmp_path, metric: str, more: str = "", *, floor: float = 0.5, nodes: int = 4) -> dict[str, tuple[float, str]]:
    limits = loaded(tmp_path, H100.format(metric=metric, more=more, floor=floor, nodes=nodes)).limits
    assert all(limit.of == "value" for limit in limits)
    return {limit.metric: (limit.value, limit.unit) for limit in limits}


@pytest.mark.parametrize(
    ("metric", "more", "value", "unit"),
    [
        ("gemm.flops", "", 494.5e12, "FLOP/s"),
        ("training.flops", "", 494.5e12, "FLOP/s"),
        ("memory.copy.bandwidth", "", 1.675e12, "B/s"),
        ("links.bandwidth", "", 25e9, "B/s"),
        ("links.flows.bandwidth", "", 400e9, "B/s"),
        ("links.both_ways.bandwidth", "", 50e9, "B/s"),
        ("links.hardware.bandwidth", 'where = { tool = "ib_write_bw" }', 25e9, "B/s"),
        ("links.hardware.both_ways.bandwidth", 'where = { tool = "ib_write_bw" }', 50e9, "B/s"),
        ("collectives.all_reduce.ring.busbw", "", 200e9, "B/s"),
        ("collectives.all_reduce.network.busbw", 'algorithm = "ring"', 25e9, "B/s"),
        ("collectives.all_to_all.network.busbw", 'algorithm = "direct"', 25e9, "B/s"),
        ("collectives.all_reduce.busbw", 'algorithm = "ring"\nwhere = { group = "world" }', 200e9, "B/s"),
        ("collectives.all_reduce.busbw", 'algorithm = "ring"\nwhere = { group = "node" }', 225e9, "B/s"),
        ("collectives.all_reduce.busbw", 'algorithm = "ring"\nwhere = { group = "rail" }', 25e9, "B/s"),
        ("collectives.all_to_all.busbw", 'where = { group = "world" }', 25e9 * 31 / 24, "B/s"),
    ],
)
def test_a_share_of_the_hardware_becomes_a_plain_limit(metric, more, value, unit, tmp_path):
    assert share(tmp_path, metric, more) == {metric: (pytest.approx(value), unit)}


def test_a_pattern_becomes_one_limit_for_each_operation(tmp_path):
    found = share(tmp_path, "collectives.*.busbw", 'where = { group = "world" }', floor=1.0)
    assert len(found) == 9
    assert found["collectives.broadcast.busbw"] == (400e9, "B/s")
    names = [limit.name for limit in load(str(tmp_path / "site.toml")).limits]
    assert names[:2] == ["share.all_reduce", "share.all_gather"]


def test_the_bisection_is_of_half_of_the_ranks(tmp_path):
    share(tmp_path, "links.flows.bandwidth")
    (limit,) = load(str(tmp_path / "site.toml")).limits
    assert limit.where == {"flows": 16}


def test_the_source_of_a_share_says_how_it_came_about(tmp_path):
    share(tmp_path, "collectives.all_reduce.busbw", 'algorithm = "ring"\nwhere = { group = "world" }')
    (limit,) = load(str(tmp_path / "site.toml")).limits
    assert limit.source == "contract; 0.5 of 4e+11 B/s, line rate of ring in a world: min(g/(g-1) v, W)"


@pytest.mark.parametrize(
    ("metric", "more", "expected"),
    [
        ("collectives.all_reduce.busbw", "", r'the line rate depends on the group: where = { group = "world" }'),
        ("collectives.all_reduce.busbw", 'where = { group = "wrld" }', r'"node" or "rail", not "wrld"'),
        ("collectives.all_reduce.busbw", 'algorithm = "rings"\nwhere = { group = "world" }', r"no algorithm 'rings'"),
        ("collectives.all_gather.busbw", 'algorithm = "tree"\nwhere = { group = "world" }', r"no algorithm 'tree' for"),
        ("gemm.flops", 'algorithm = "ring"', r"algorithm goes with collectives and links"),
        ("gemm.flop", "", r"knows nothing of 'gemm.flop' \(do you mean 'gemm.flops'"),
        ("checkpoint.save.bandwidth", "", r"knows nothing of 'checkpoint.save.bandwidth'"),
    ],
)
def test_a_share_of_what_is_not_known_is_refused(metric, more, expected, refused):
    line = refused(H100.format(metric=metric, more=more, floor=0.5, nodes=4))
    assert "[limits.share]" in line
    assert re.search(expected, line), line


def test_a_share_of_unknown_hardware_is_refused(refused):
    assert "needs to know it: set gpu" in refused(re.sub("ceiling.*", "floor = 1.0\nof = 'hardware'", LIMIT))


@pytest.mark.parametrize(
    ("scope", "nodes"),
    [("nodes = 2", {2}), ("min_nodes = 2", {2, 4}), ("max_nodes = 2", {1, 2}), ("min_nodes = 2, max_nodes = 3", {2})],
)
def test_a_limit_for_other_numbers_of_nodes_does_not_load(scope, nodes, tmp_path):
    held = {n for n in (1, 2, 4) if loaded(tmp_path, f"nodes = {n}\n{LIMIT}scope = {{ {scope} }}").limits}
    assert held == nodes


@pytest.mark.parametrize(
    "scope", ["sku = 'cpu'", "sku = 'h200-sxm', backend = 'nccl'", "sku = 'NVIDIA H200', backend = 'gloo'"]
)
def test_a_scope_that_a_run_can_have_loads(scope, tmp_path):
    assert len(loaded(tmp_path, f"{LIMIT}scope = {{ {scope} }}").limits) == 1


def test_a_limit_for_other_numbers_of_nodes_keeps_its_name(tmp_path):
    assert loaded(tmp_path, f"{LIMIT}scope = {{ min_nodes = 2 }}").elsewhere == ("exact",)
    assert loaded(tmp_path, LIMIT).elsewhere == ()


# -- the shipped files -----------------------------------------------------------------------------------------------


def with_nodes(tmp_path: Path, name: str, nodes: int):
    """A shipped cluster with another number of nodes."""
    text, changed = re.subn(r"(?m)^nodes = \d+", f"nodes = {nodes}", (FOLDER / f"{name}.toml").read_text())
    assert changed == 1
    return loaded(tmp_path, text)


NODES = {"local": (1,), "gb200-nvl72": (18, 36, 90), "h100-512-reference": (64,)}  # its layout is for 64


@pytest.mark.parametrize(("name", "nodes"), [(n, k) for n in known() for k in NODES.get(n, (1, 2, 3, 64))])
def test_every_limit_judges_something_that_the_acceptance_suite_expects(name, nodes, tmp_path):
    cluster = with_nodes(tmp_path, name, nodes)
    product = cluster.gpu.names[0] if cluster.gpu else "any"
    gpu = InstalledGpu(index=0, name=product, serial="", uuid="", memory_bytes=1, driver="")
    gpus = (gpu,) * (cluster.gpus_per_node or 0)
    check_metrics(cluster, metrics(cluster, gpus))
    expected = make_plan(cluster, "acceptance", checks("acceptance"), gpus).expected
    idle = [limit.name for limit in cluster.limits if not any(limit.covers(e.metric, e.params) for e in expected)]
    assert idle == []


@pytest.mark.parametrize("name", [name for name in known() if name != "local"])
def test_no_floor_is_above_what_is_possible(name):
    """Every floor of a number that has a physical ceiling lies below it, with room for a good machine."""
    limits = load(name).limits
    for floor in (limit for limit in limits if limit.bound == "floor" and limit.of == "value" and not limit.physical):
        for ceiling in (limit for limit in limits if limit.bound == "ceiling" and limit.physical):
            same = all(ceiling.where.get(key) == floor.where.get(key) for key in ("group", "tool"))
            if ceiling.metric == floor.metric and same:
                assert floor.value < 0.97 * ceiling.value, (floor.name, ceiling.name)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        # published all_reduce bus bandwidths of healthy machines at 8 GiB: accepted, and possible
        ("h100-sxm-ndr400", {1: 478.9e9, 2: 479e9, 4: 330.9e9}),
        ("h200-sxm-ndr400", {1: 480e9, 16: 369.9e9}),
        ("b200-sxm-ndr400", {1: 838e9, 4: 380e9}),
        ("a100-sxm-hdr200", {1: 234.9e9}),
        ("gb200-nvl72", {18: 834e9, 36: 793e9, 360: 382e9}),
    ],
)
def test_published_numbers_of_healthy_machines_are_accepted(name, seen, tmp_path):
    for nodes, busbw in seen.items():
        cluster = with_nodes(tmp_path, name, nodes)
        limits = [
            limit for limit in cluster.limits
            if limit.metric == "collectives.all_reduce.busbw" and limit.where["group"] == "world"
        ]  # fmt: skip
        assert {limit.bound for limit in limits} == {"floor", "ceiling"}, f"{name} on {nodes} nodes judges nothing"
        for limit in limits:
            good = busbw >= limit.value if limit.bound == "floor" else busbw <= limit.value
            assert good, f"{name} on {nodes} nodes: {busbw:g} against {limit.name} {limit.value:g}"


@pytest.mark.parametrize(
    ("name", "nodes", "sick"),
    [
        ("h100-sxm-ndr400", 1, 370e9),  # a ring where NVLS should be
        ("h100-sxm-ndr400", 2, 231e9),  # a broken RoCE set-up, as seen
        ("h100-sxm-ndr400", 8, 290e9),  # one NIC of eight at three quarters slows the whole ring
        ("a100-sxm-hdr200", 1, 150e9),
        ("b200-sxm-ndr400", 1, 682e9),  # a ring where NVLS should be
    ],
)
def test_sick_machines_are_not(name, nodes, sick, tmp_path):
    cluster = with_nodes(tmp_path, name, nodes)
    floors = [
        limit for limit in cluster.limits
        if limit.covers("collectives.all_reduce.busbw", {"group": "world", "bytes": 8 << 30})
        and limit.bound == "floor" and limit.mandatory
    ]  # fmt: skip
    assert any(sick < limit.value for limit in floors)


# -- the records and the hardware ------------------------------------------------------------------------------------


def test_a_waiver_covers_its_limit_its_subjects_and_its_last_day():
    waiver = Waiver(id="W", limit="l", approver="A", reason="r", expires=date(2026, 12, 24), subject="node7*")
    assert waiver.waives("l", "node7 gpu3", date(2026, 12, 24))
    assert not waiver.waives("l", "node7 gpu3", date(2026, 12, 25))
    assert not waiver.waives("l", "node8", date(2026, 12, 1))
    assert not waiver.waives("m", "node7", date(2026, 12, 1))


def test_every_product_name_leads_to_its_model():
    for sku, model in hardware.gpus().items():
        assert model.sku == sku
        assert all(hardware.identify(name) is model for name in model.names)


def test_peaks_are_dense():
    """The usual mistake is the datasheet's figure with sparsity, twice as high."""
    peaks = {sku: model.bf16_flops / 1e12 for sku, model in hardware.gpus().items()}
    assert (peaks["a100-sxm-80gb"], peaks["h100-sxm"], peaks["h200-sxm"]) == (312, 989, 989)
    assert (peaks["b200"], peaks["gb200"], peaks["mi300x"]) == (2250, 2500, 1307)


def test_an_unknown_product_names_the_nearest_and_the_cure():
    with pytest.raises(ClusterError, match=r"unknown GPU product 'NVIDIA H201' \(do you mean .*H200.*hardware.toml"):
        hardware.identify("NVIDIA H201")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("bf16_flops = 989e12", "bf16_flops = nan"), r"bf16_flops = nan"),
        (("bf16_flops = 989e12", ""), r"bf16_flops = 0 must be above zero"),
        (('names = ["NVIDIA H200"]', "names = []"), r"\[h200-sxm\]: names must list"),
        (('names = ["NVIDIA H200"]', 'names = ["NVIDIA B200"]'), r"'NVIDIA B200' names both h200-sxm and b200"),
        (("memory_bandwidth", "memory_bandwith"), r"'memory_bandwith' \(do you mean 'memory_bandwidth'"),
    ],
)
def test_broken_hardware_facts_are_refused(change, expected, tmp_path):
    text = (FOLDER / "hardware.toml").read_text()
    assert change[0] in text
    (tmp_path / "hardware.toml").write_text(text.replace(*change))
    with pytest.raises(ClusterError, match=expected):
        hardware.gpus(tmp_path / "hardware.toml")
