"""The mean of runs that differ only in the seed, for charts that show one point or curve for each cell."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from fedrank.ballots.traffic import Traffic
from fedrank.experiment.records import CellAccuracy, Curve, FinishedCell
from fedrank.experiment.sweep import place_of


def seed_means(rows: Iterable[FinishedCell]) -> list[FinishedCell]:
    """Return one result for all runs in a cell of the table: the means of what charts draw."""
    groups: dict[tuple[str, ...], list[FinishedCell]] = {}
    for row in rows:
        groups.setdefault(place_of(row.coordinates), []).append(row)
    return [_mean(some) if len(some) > 1 else some[0] for some in groups.values()]


def _mean(rows: Sequence[FinishedCell]) -> FinishedCell:
    clients = [row.evaluation.clients.mean for row in rows if row.evaluation.clients]
    evaluation = rows[0].evaluation.model_copy(
        update={
            "clients": CellAccuracy(mean=statistics.fmean(clients)) if clients else None,
            "test_accuracy": statistics.fmean(row.evaluation.test_accuracy for row in rows),
        }
    )
    sent = Traffic(
        statistics.fmean(row.sent.upload_bytes for row in rows),
        statistics.fmean(row.sent.download_bytes for row in rows),
    )
    curve = _mean_curve([row.curve for row in rows])
    return rows[0].model_copy(update={"evaluation": evaluation, "sent": sent, "curve": curve})


def _mean_curve(curves: Sequence[Curve]) -> Curve:
    """Return the means at the rounds in which all curves were measured."""
    common = sorted(set.intersection(*(set(curve.round) for curve in curves)))

    def means(name: str) -> list[float]:
        several = [dict(zip(curve.round, getattr(curve, name), strict=False)) for curve in curves]
        if not all(values.keys() >= set(common) for values in several):
            return []  # not all runs have measured it
        return [statistics.fmean(values[number] for values in several) for number in common]

    named = {name: means(name) for name in ("accuracy", "loss", "clients", "worst_class")}
    return Curve(round=common, **named)
