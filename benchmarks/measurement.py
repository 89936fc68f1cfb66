"""The records: everything a run writes down, and their exact JSON form.

One record is one line of JSON. Units are SI inside and scaled only when rendered. A line written by an
older version reads; one written by a newer version, or with a field nobody knows, is refused with the
reason. Nothing but the standard library is needed: a page is built from these without torch.

>>> line = encode(Measurement(metric="gemm.flops", unit="FLOP/s", better="higher", samples=(1e12,)))
>>> decode(Measurement, line).samples
(1000000000000.0,)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

try:  # three times as fast on large tables; ranks in a vendor's container need not have it
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]

SCHEMA = 1  # raise it when a field changes its meaning, and add a step to UPGRADES

BETTER = ("higher", "lower", "equal")
STATUSES = (
    "pass", "fail", "noisy", "missing", "error", "impossible", "waived", "not_applicable", "no_baseline",
)  # fmt: skip
OUTCOMES = ("ACCEPTED", "CONDITIONAL", "INCOMPLETE", "REJECTED")
PER = ("world", "node", "rank", "pair", "neighbour", "meeting", "nic")
PAIRS = ("pair", "neighbour", "meeting")  # whose units are (sender, receiver)

UPGRADES: dict[int, Callable[[str, dict[str, Any]], dict[str, Any]]] = {}
"""version -> function(record class name, fields of that version) -> fields of the next version"""

Scalar = str | int | float | bool
SCALARS = frozenset((str, int, float, bool))
T = TypeVar("T")
_IN_ORDER = json.JSONEncoder(sort_keys=True).encode  # made once: a run asks for millions of keys


class RecordError(ValueError):
    """A line that is no record of ours: cut, unknown field, wrong type or a newer schema."""


def now() -> str:
    """The time now, UTC, as the records write it (2026-12-01T02:00:00.123Z)."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a benchmark promises to emit: a name, its unit, which way is better, and how many.

    Per "meeting" is a table of ordered pairs that need not be all pairs: each of n ranks sends and receives in it.
    """

    name: str  # dotted: family first, e.g. collectives.all_reduce.busbw
    unit: str  # "B/s", "s", "FLOP/s", "1"
    better: str  # higher | lower | equal
    params: dict[str, Scalar] = field(default_factory=dict)  # part of the comparison key: bytes, dtype ...
    per: str = "world"  # how many units must be there: world 1, node k, rank n, pair n(n-1), meeting n (below)
    units: int = 0  # how many, where the place alone does not say: of neighbours (pairs that NVLink joins) and NICs

    def measured(self, *samples: float, **fields: Any) -> Measurement:
        """A Measurement of this metric; `fields` are further Measurement fields."""
        return Measurement(
            metric=self.name, unit=self.unit, better=self.better, params=self.params,
            samples=tuple(float(s) for s in samples), **fields,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What was measured. `label` is its one name in every table."""

    group: str = "world"  # world | node | rail | pair | rank | gpu | nic
    node: str = ""
    nodes: str = "all"  # node set, by reference: "all", or the name of a set in the run
    rank: int | None = None
    ranks: int | None = None  # size of the group
    gpu: int | None = None
    gpu_serial: str = ""
    nic: str = ""
    link: tuple[int, ...] = ()  # (a, b): from rank a to rank b
    rack: str = ""

    @property
    def label(self) -> str:
        """node7 gpu3 | rank 2 on node7 | 0->1 | node7 | world of 16."""
        if self.link:
            return "->".join(map(str, self.link))
        if self.group == "rank":
            return f"rank {self.rank}"
        if self.group == "gpu":
            return f"{self.node} gpu{self.gpu}"
        if self.group == "nic":
            return f"{self.node} {self.nic}"
        if self.group == "node":
            return self.node
        return f"{self.group} of {self.ranks}" if self.ranks else self.group


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Samples of one metric of one subject, or a table of them, or the reason why there are none.

    `samples` holds one value per repetition. A table instead has `columns["samples"]`, a list of samples
    per row, beside identity columns of the same length: "rank", "a" and "b" for pairs, "node" and "nic". Other columns
    (per-rank medians, say) are evidence: kept and shown, not judged.
    """

    metric: str
    unit: str
    better: str
    samples: tuple[float, ...] = ()
    columns: dict[str, list[Any]] = field(default_factory=dict)
    subject: Subject = field(default_factory=Subject)
    params: dict[str, Scalar] = field(default_factory=dict)
    config: str = ""
    attempt: int = 1
    outcome: str = "ok"  # ok | error | missing (what would measure it is not installed)
    reason: str = ""
    conditions: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)  # evidence that is no number: first wrong element ...
    started_at: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Metric and params: with the config, what an Expected of the run asks for."""
        return self.metric, params_key(self.params)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """One number that must be there before the run can be accepted."""

    metric: str
    unit: str
    better: str
    config: str
    test: str  # the check that asked for it: suites/test_gemm.py::test_...
    params: dict[str, Scalar] = field(default_factory=dict)
    per: str = "world"
    units: int = 1  # how many distinct subjects or table rows: all of them, or it is missing

    @property
    def key(self) -> tuple[str, str]:
        """Metric and params, as in Measurement.key."""
        return self.metric, params_key(self.params)


@dataclass(frozen=True, kw_only=True)
class Config:
    """One benchmark with its settings at one place: what a batch asks the ranks to do."""

    id: str
    benchmark: str  # "gemm", "collectives" ...
    spec: dict[str, Any]  # the fields of the benchmark's spec
    place: dict[str, Any]  # the fields of its Place
    limit_s: float  # the benchmark's time-out: past it the ranks are diagnosed and ended


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What one node was during one launch."""

    node: str
    launch: int = 1
    ranks: tuple[int, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)  # torch, kernel, cpu, gpus, driver, nccl ...


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to the run: a launch, a batch, an error, an interrupt, the end."""

    kind: str
    at: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Run:
    """The head of a run folder: written before anything is measured, never changed after."""

    id: str
    suite: str
    cluster: str
    cluster_sha256: str
    started_at: str
    revision: str = ""  # source revision, "+dirty" where the checkout was changed
    nodes: int = 1
    scope: dict[str, Scalar] = field(default_factory=dict)  # sku, nodes, backend: what limits are scoped by
    command: str = ""  # how it was started
    by: str = ""  # who started it; "" where nobody could tell
    configs: tuple[Config, ...] = ()
    expected: tuple[Expected, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one expected number, against one limit, amounts to."""

    status: str
    metric: str
    unit: str
    better: str
    config: str = ""
    test: str = ""
    params: dict[str, Scalar] = field(default_factory=dict)
    subject: str = ""  # label of the worst unit
    limit: str = ""  # name of the limit; "" for an integrity verdict (missing, error)
    bound: str = ""  # floor | ceiling | equal
    limit_value: float | None = None  # in `limit_unit`
    limit_unit: str = ""
    limit_source: str = ""
    value: float | None = None  # of the worst unit, in `limit_unit` (a ratio where the limit is one)
    low: float | None = None  # interval of `value`
    high: float | None = None
    margin: float | None = None  # how far on the good side, as a share of the limit; negative is bad
    noise: float | None = None  # half width of the interval as a share of the value
    n: int = 0  # samples of the worst unit
    units: int = 0  # units judged
    mandatory: bool = True
    physical: bool = False  # of a bound that nothing can pass: beyond it is `impossible`, within it proves nothing
    reason: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    attempts: int = 1
    again: str = ""  # the command that measures it again

    @property
    def check(self) -> str:
        """The verdict's name: metric[params] against limit."""
        inside = ",".join(f"{k}={v}" for k, v in sorted(self.params.items()))
        return f"{self.metric}[{inside}]" if inside else self.metric


def params_key(params: dict[str, Scalar]) -> str:
    """Params as one hashable, order-free string."""
    return _IN_ORDER(params)


def encode(record: Any) -> str:
    """One line of JSON, strictly standard: NaN and infinities become {"$": "nan"}."""
    return json.dumps({"v": SCHEMA, **_plain(record)}, allow_nan=False, separators=(",", ":"))


def decode(cls: type[T], line: str | bytes) -> T:
    """The record a line holds.

    Raises RecordError with what is wrong: not JSON (cut?), a newer schema, an unknown or missing field,
    a field of another type, a whole number that no float holds.
    """
    try:
        fields = _parsed(line)
    except RecordError:
        raise
    except ValueError as error:
        raise RecordError(f"not a whole line of JSON ({error})") from None
    if not isinstance(fields, dict):
        raise RecordError(f"a {cls.__name__} is a JSON object, this line is a {type(fields).__name__}")
    version = fields.pop("v", None)
    if type(version) is not int or version < 0:
        raise RecordError(f'no schema version: every record starts with "v", this one has {version!r}')
    if version > SCHEMA:
        raise RecordError(
            f"written by a newer version of this suite (schema {version}, this one reads up to {SCHEMA}): update it"
        )
    for step in range(version, SCHEMA):
        if step not in UPGRADES:
            oldest = min(UPGRADES, default=SCHEMA)
            raise RecordError(f"schema {version} is no longer readable (this suite reads from {oldest} on)")
        fields = UPGRADES[step](cls.__name__, fields)
    record: T = _typed(cls, fields, cls.__name__)
    return record


def _parsed(line: str | bytes) -> Any:
    """The JSON of a line: by orjson where it is installed and content, else by the standard library, which decides."""
    sign, mark = (b"$", b'"$"') if isinstance(line, bytes) else ("$", '"$"')
    marked = sign in line and mark in line  # type: ignore[operator]  # one byte is found ten times as fast
    if orjson is not None and not marked:
        with contextlib.suppress(ValueError):
            return orjson.loads(line)
    return json.loads(line, object_hook=_revive if marked else None, parse_int=_whole)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _plain(got) for f in dataclasses.fields(value) if (got := getattr(value, f.name)) != _default(f)
        }
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"$": str(value)}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a record holds plain values, not {type(value).__name__}")


def _whole(digits: str) -> int:
    number = int(digits)
    try:
        float(number)
    except OverflowError:
        raise RecordError(f"a number too large to compute with ({digits[:12]}..., {len(digits)} digits)") from None
    return number


def _revive(fields: dict[str, Any]) -> Any:
    return float(fields["$"]) if fields.keys() == {"$"} and fields["$"] in ("nan", "inf", "-inf") else fields


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@functools.cache
def _shape(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Origin and arguments of a type hint; a record's origin is its own class."""
    return (kind, ()) if dataclasses.is_dataclass(kind) else (typing.get_origin(kind), typing.get_args(kind))


def _typed(kind: Any, value: Any, where: str) -> Any:
    """`value` as the type hint `kind` says, or RecordError naming the field."""
    if kind is Any or type(value) is kind:
        return value
    origin, args = _shape(kind)
    if origin is kind:
        return _record(kind, value, where)
    if origin in (types.UnionType, typing.Union):
        if type(value) in args:
            return value
        return _typed_union([a for a in args if a is not types.NoneType], value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise RecordError(f"{where}: expected a list, got {value!r:.60}")
        if args[0] is float and set(map(type, value)) <= {float}:
            return tuple(value)  # samples: most of every run
        return tuple(_typed(args[0], v, where) for v in value)
    if origin is list:
        if not isinstance(value, list):
            raise RecordError(f"{where}: expected a list, got {value!r:.60}")
        return value if args[0] is Any else [_typed(args[0], v, where) for v in value]
    if origin is dict:
        if not isinstance(value, dict):
            raise RecordError(f"{where}: expected an object, got {value!r:.60}")
        if args[1] is Any or (args[1] == Scalar and set(map(type, value.values())) <= SCALARS):
            return value
        return {k: _typed(args[1], v, f"{where}.{k}") for k, v in value.items()}
    return _scalar(kind, value, where)


def _record(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise RecordError(f"{where}: expected an object, got {value!r:.60}")
    hints, fields = _hints(kind), {}
    if unknown := sorted(value.keys() - hints.keys()):
        raise RecordError(f"{where}: unknown field {', '.join(unknown)} (known: {', '.join(hints)})")
    for name, got in value.items():
        fields[name] = got if type(got) is hints[name] else _typed(hints[name], got, f"{where}.{name}")
    try:
        return kind(**fields)
    except TypeError as error:  # a field without default is absent
        raise RecordError(f"{where}: {error}") from None


def _typed_union(kinds: list[Any], value: Any, where: str) -> Any:
    for kind in kinds:
        if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
            return value
    if len(kinds) == 1 or (float in kinds and str not in kinds):
        return _typed(float if float in kinds else kinds[0], value, where)
    raise RecordError(f"{where}: expected one of {', '.join(k.__name__ for k in kinds)}, got {value!r:.60}")


def _scalar(kind: type, value: Any, where: str) -> Any:
    if kind is float and not isinstance(value, bool):
        if isinstance(value, int | float):
            return float(value)
    elif isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
        return value
    raise RecordError(f"{where}: expected {kind.__name__}, got {value!r:.60}")
