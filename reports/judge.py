"""From expectations, measurements and limits to Verdicts, and from Verdicts to the outcome.

Pure: the same records give the same verdicts on the same date. Everything expected and not soundly
measured gets a verdict of its own; everything measured gets one verdict per limit that covers it. A
number that no limit covers gets none (`unjudged` lists those). Nothing is rendered here.

>>> outcome([], selected_all=True, ended=True)
'INCOMPLETE'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

from benchmarks.measurement import Event, Expected, Measurement, Run, Verdict, params_key
from clusters.limits import Exemption, Limit, Waiver
from reports.bounds import Judged, against, margin
from reports.comparison import Baseline
from reports.evidence import Attempt, Evidence, Problem, listed
from reports.reasons import ratio_of, told
from reports.references import References

EXIT_CODES = {"ACCEPTED": 0, "REJECTED": 1, "INCOMPLETE": 3, "CONDITIONAL": 6}
UNSOUND = ("missing", "error", "impossible")  # measuring went wrong: it counts, whatever the limit
GRAVITY = ("error", "missing", "impossible", "fail", "noisy", "waived", "no_baseline", "not_applicable", "pass")
PROJECTED = "projected"  # a param of numbers that were worked out for more nodes than were measured
PASSES_NOTHING = "a projection may fail a cluster and never passes one: measure on all its nodes"
LISTED_UNITS = 50  # failing units kept in a verdict's evidence; their number always is

Again = Callable[[Expected, str], str]  # an expected number and its status -> the command that measures it again


def judge(
    run: Run,
    measurements: Iterable[Measurement] | Evidence,
    limits: Sequence[Limit],
    *,
    waivers: Sequence[Waiver] = (),
    exemptions: Sequence[Exemption] = (),
    baseline: Baseline | None = None,
    today: date,
    again: Again | None = None,
    errors: Iterable[Event] = (),
    excused: Collection[str] = (),
) -> list[Verdict]:
    """Verdicts on everything a run expected, in its order.

    `errors` are the run's events of kind "error": what a config that left no record died of. `baseline`
    maps comparison keys to earlier values (reports/comparison.py). `again` writes the command that
    measures an expected number again. `excused` nodes are known to be bad: left out of fleet medians, not of verdicts.
    """
    evidence = measurements if isinstance(measurements, Evidence) else Evidence(measurements, errors)
    judging = _Judging(
        run=run,
        limits=[limit for limit in limits if limit.holds_in(run.scope)],
        waivers=waivers,
        exemptions=exemptions,
        today=today,
        again=again or (lambda *_: measure_again(run)),
        evidence=evidence,
        references=References(run, evidence, baseline=baseline),
        excused=frozenset(excused),
    )
    return [verdict for e in run.expected for verdict in judging.verdicts(e)] + judging.idle_limits()


def outcome(verdicts: Iterable[Verdict], *, selected_all: bool, ended: bool) -> str:
    """REJECTED, INCOMPLETE, CONDITIONAL or ACCEPTED, in this order."""
    return explain(verdicts, selected_all=selected_all, ended=ended)[0]


def explain(
    verdicts: Iterable[Verdict], *, selected_all: bool, ended: bool, broken_checks: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The outcome and every reason for it, gravest first.

    `broken_checks` are those that failed in their own code: a check that could not look proves nothing.

    A pass within a physical bound proves that measuring is sound, not that the cluster is good: alone it is nothing.
    An advisory limit's `fail` and `noisy` are shown and change nothing. Anything missing, in error or
    impossible counts whatever the limit: it says that measuring went wrong, not the cluster.
    """
    counting = [v for v in verdicts if v.mandatory or v.status in UNSOUND]
    counts = Counter(v.status for v in counting)
    rejected = [f"{_checks(counts['fail'])} failed"] if counts["fail"] else []
    words = {"missing": "missing", "error": "in error", "impossible": "impossible", "noisy": "noisy"}
    incomplete = [f"{_checks(counts[s])} {said}" for s, said in words.items() if counts[s]]
    if broken_checks:
        incomplete.append(f"failed as a check: {listed(broken_checks)}")
    if not selected_all:
        incomplete.append("some checks were deselected")
    if not ended:
        incomplete.append("the run never ended")
    if not counts["pass"]:
        incomplete.append("no mandatory check passed")
    elif all(v.physical for v in counting if v.status == "pass"):
        incomplete.append("nothing but physical bounds passed")
    waived = [f"{_checks(counts['waived'])} waived"] if counts["waived"] else []
    if rejected:
        return "REJECTED", rejected + incomplete + waived
    if incomplete:
        return "INCOMPLETE", incomplete + waived
    return ("CONDITIONAL", waived) if waived else ("ACCEPTED", [f"{_checks(counts['pass'])} passed"])


def unjudged(run: Run, verdicts: Iterable[Verdict]) -> list[Expected]:
    """What was expected and soundly measured, and no limit judges."""
    judged = {(v.config, v.metric, params_key(v.params)) for v in verdicts}
    return [e for e in run.expected if (e.config, *e.key) not in judged]


def measure_again(run: Run) -> str:
    """The command that measures a run's failed checks again, unless the caller knows a shorter one."""
    return f"pytest suites --cluster {run.cluster} --suite {run.suite} --retest failed"


def _checks(count: int) -> str:
    return f"{count:,} check" if count == 1 else f"{count:,} checks"


class _Judging:
    """One call of `judge`: its arguments, and which rules go with which metric."""

    def __init__(
        self,
        *,
        run: Run,
        limits: Sequence[Limit],
        waivers: Sequence[Waiver],
        exemptions: Sequence[Exemption],
        today: date,
        again: Again,
        evidence: Evidence,
        references: References,
        excused: Collection[str],
    ) -> None:
        self.run, self.limits, self.waivers, self.exemptions = run, limits, waivers, exemptions
        self.excused = excused
        self.today, self.again, self.evidence, self.references = today, again, evidence, references
        self.by_metric: dict[str, tuple[Exemption | None, list[Limit]]] = {}

    def verdicts(self, e: Expected) -> list[Verdict]:
        """Every verdict on one expected number."""
        exemption, limits = self._rules(e.metric)
        if exemption:
            return [self._plain(e, "not_applicable", f"{exemption.reason} (the cluster file says so)")]
        attempts = self.evidence.attempts(e)
        if not attempts:
            return [self._plain(e, "missing", "expected, and never measured")]
        limits = [limit for limit in limits if limit.covers(e.metric, e.params)]
        latest, earlier = attempts[-1], attempts[:-1]
        if latest.problem:
            return [self._plain(e, *latest.problem, history=self._history(e, limits, earlier))]
        found = [self._limited(e, limit, latest, earlier) for limit in limits]
        if e.params.get(PROJECTED) and not any(map(_counts, found)):
            found.append(self._plain(e, "missing", f"PROJECTED, and {PASSES_NOTHING}"))
        return found

    def idle_limits(self) -> list[Verdict]:
        """A verdict on each limit whose metric is expected while its `where` meets none of its params."""
        by_metric: dict[str, list[Expected]] = {}
        for e in self.run.expected:
            if not self._rules(e.metric)[0]:
                by_metric.setdefault(e.metric, []).append(e)
        idle = []
        for limit in self.limits:
            meant = [e for metric, es in by_metric.items() if fnmatchcase(metric, limit.metric) for e in es]
            if meant and not any(limit.covers(e.metric, e.params) for e in meant):
                idle.append(self._idle(limit, meant[0]))
        return idle

    def _rules(self, metric: str) -> tuple[Exemption | None, list[Limit]]:
        """The exemption of a metric, and the limits whose pattern it matches."""
        if metric not in self.by_metric:
            exemption = next((x for x in self.exemptions if fnmatchcase(metric, x.metric)), None)
            self.by_metric[metric] = exemption, [x for x in self.limits if fnmatchcase(metric, x.metric)]
        return self.by_metric[metric]

    def _limited(self, e: Expected, limit: Limit, latest: Attempt, earlier: Sequence[Attempt]) -> Verdict:
        """The verdict of one limit on the latest attempt, with what earlier ones came to."""
        fields = self._compare(e, limit, latest)
        if e.params.get(PROJECTED):
            fields["reason"] = f"PROJECTED: {fields['reason']}"
            if fields["status"] in ("pass", "waived"):
                fields |= {"status": "missing", "reason": f"{fields['reason']}; {PASSES_NOTHING}"}
        history = self._history(e, [limit], earlier)
        return self._verdict(e, fields, history, **_of_limit(limit))

    def _plain(self, e: Expected, status: str, reason: str, *, history: Sequence[dict[str, Any]] = ()) -> Verdict:
        """A verdict without a limit: not measured, or not soundly."""
        return self._verdict(e, {"status": status, "reason": reason}, history)

    def _verdict(
        self, e: Expected, fields: dict[str, Any], history: Sequence[dict[str, Any]], **of_limit: Any
    ) -> Verdict:
        if history:
            last = history[-1]
            fields["evidence"] = {**fields.get("evidence", {}), "earlier": list(history)}
            fields["reason"] += f"; attempt {last['attempt']} was {last['status']}: {last['reason']}"
        return Verdict(
            metric=e.metric,
            unit=e.unit,
            better=e.better,
            config=e.config,
            test=e.test,
            params=e.params,
            attempts=1 + len(history),
            again=self.again(e, str(fields["status"])),
            **of_limit,
            **fields,
        )

    def _idle(self, limit: Limit, meant: Expected) -> Verdict:
        asked = ", ".join(f"{k}={v}" for k, v in limit.where.items())
        return Verdict(
            status="missing",
            metric=limit.metric,
            unit=meant.unit,
            better=meant.better,
            test=meant.test,
            params=limit.where,
            reason=f"nothing that is measured has {asked}, so this limit judges nothing: change its where or the sweep",
            again=self.again(meant, "missing"),
            **_of_limit(limit),
        )

    def _compare(self, e: Expected, limit: Limit, attempt: Attempt) -> dict[str, Any]:
        """Status, value, margin, reason ... of one attempt against one limit, as Verdict fields."""
        if limit.of == "value" and limit.unit != e.unit:
            return {"status": "error", "reason": f"limit in {limit.unit!r}, measured in {e.unit!r}: not comparable"}
        if limit.of == "peers":
            if len(attempt.units) < 2:
                return {"status": "not_applicable", "reason": "one unit has no peers", "units": 1}
            if attempt.lowest <= 0:
                return {"status": "error", "reason": "a value of zero or less has no ratio to its peers"}
            return self._worst(limit, attempt, against(limit, attempt, excused=self.excused))
        reference = None if limit.of == "value" else self.references.of(e, limit)
        if isinstance(reference, Problem):
            return {"status": reference.status, "reason": reference.reason, "units": len(attempt.units)}
        fields = self._worst(limit, attempt, against(limit, attempt, reference))
        if reference:
            fields["evidence"]["reference"] = [reference.median, reference.low, reference.high]
        return fields

    def _worst(self, limit: Limit, attempt: Attempt, judged: list[Judged]) -> dict[str, Any]:
        """The worst unit's numbers as Verdict fields, with every other unit that shares its fate."""
        judged, waiver, expired = self._waived(limit, judged)
        worst, value = judged[0], judged[0].estimate
        alike = [j for j in judged if j.status == worst.status != "pass"]
        evidence: dict[str, Any] = {"node": worst.node} if worst.node else {}
        if limit.of != "value":
            evidence["of"] = ratio_of(limit)
        if alike and len(attempt.units) > 1:
            evidence["units"] = [[j.unit, j.node, j.estimate.median] for j in alike[:LISTED_UNITS]]
            evidence["num_units"] = len(alike)
        if waiver:
            evidence["waiver"] = {
                "id": waiver.id,
                "approver": waiver.approver,
                "expires": str(waiver.expires),
                "reason": waiver.reason,
            }
        return {
            "status": worst.status,
            "subject": worst.unit,
            "value": value.median,
            "low": value.low,
            "high": value.high,
            "margin": margin(limit, value.median),
            "noise": value.noise,
            "n": value.n,
            "units": len(attempt.units),
            "reason": told(limit, attempt, judged[0], alike, waiver, expired),
            "evidence": evidence,
        }

    def _waived(self, limit: Limit, judged: list[Judged]) -> tuple[list[Judged], Waiver | None, Waiver | None]:
        """Units with waived failures last but for passes, the waiver used, and one that has expired."""
        mine = [w for w in self.waivers if w.limit == limit.name] if limit.mandatory else []
        used = expired = None
        result = []
        for j in judged:
            if mine and j.status == "fail":
                named = [w for w in mine if fnmatchcase(j.unit, w.subject)]
                waiver = next((w for w in named if w.waives(limit.name, j.unit, self.today)), None)
                used, expired = used or waiver, expired or next((w for w in named if w.expires < self.today), None)
                j = j._replace(status="waived") if waiver else j
            result.append(j)
        return sorted(result, key=lambda j: GRAVITY.index(j.status)), used, expired

    def _history(self, e: Expected, limits: Sequence[Limit], earlier: Sequence[Attempt]) -> list[dict[str, Any]]:
        """What each earlier attempt came to: the gravest of its verdicts."""
        history = []
        for attempt in earlier:
            if attempt.problem:
                found: list[dict[str, Any]] = [attempt.problem._asdict()]
            else:
                found = [self._compare(e, limit, attempt) for limit in limits]
            worst = min(
                found, key=lambda f: GRAVITY.index(f["status"]), default={"status": "pass", "reason": "no limit"}
            )
            kept = {k: worst[k] for k in ("status", "reason", "subject", "value") if k in worst}
            history.append({"attempt": attempt.number, **kept})
        return history


def _counts(v: Verdict) -> bool:
    """Whether a verdict alone keeps a run from being accepted."""
    return v.status in UNSOUND or (v.mandatory and v.status in ("fail", "noisy"))


def _of_limit(limit: Limit) -> dict[str, Any]:
    return {
        "limit": limit.name,
        "bound": limit.bound,
        "limit_value": limit.value,
        "limit_unit": limit.unit,
        "limit_source": limit.source,
        "mandatory": limit.mandatory,
        "physical": limit.physical,
    }
