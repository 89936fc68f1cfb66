"""Cluster files: what loads, and that whatever is wrong is refused in one line that names the cure."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from clusters import hardware
from clusters.limits import Limit, Waiver
from clusters.loader import FOLDER, ClusterError, check_metrics, check_settings, known, load

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
    """Nobody knows this machine: only definitions, ratios and bounds that nothing passes."""
    for limit in load("local").limits:
        assert limit.of != "value" or limit.physical or limit.metric.split(".")[-1] in (
            "wrong_elements", "wrong_tensors", "error", "loss_error", "gradient_error",
        ), limit.name  # fmt: skip


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
