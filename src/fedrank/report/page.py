"""The report of runs: one page that needs no network, for screens, phones and print."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrank import __version__
from fedrank.errors import ConfigError, RunError
from fedrank.experiment.metrics import Accuracy, Evaluation
from fedrank.experiment.records import RoundRecord, Summary
from fedrank.experiment.rundir import RunDirectory, replace_file, write_output
from fedrank.report.audits import BALLOT_HEADINGS, BALLOT_NOTE, ballot_rows, layer_note, layer_rows, votes_in
from fedrank.report.charts import load_altair
from fedrank.report.run_charts import RUN_CHARTS, Runs, RunView
from fedrank.report.settings import applied, attack_text, method_text
from fedrank.report.words import NO_CLIENTS_TESTED, loss_text

if TYPE_CHECKING:
    import jinja2

REPORT = "report.html"
WORST_CLIENTS = 10
MOST_REFUSED = 100
MOST_NAMED = 4
"""A title names no more runs than this."""


def own_report(directory: RunDirectory) -> str:
    """Write the page of a finished run; return a sentence that says where the results are."""
    try:
        write_report([(directory.experiment.name, directory)], directory.path / REPORT)
    except ConfigError as error:
        return f"Results: {directory.path} (no {REPORT}: {error})"
    return f"Results: {directory.path} (open {REPORT})"


@dataclass(frozen=True)
class PageTable:
    """A table of the page: rows of texts, of which the first `different` are highlighted."""

    rows: Sequence[Sequence[str]]
    headings: Sequence[str] = ()
    note: str = ""
    different: int = 0


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    heading: str
    tables: Sequence[PageTable]


def write_report(runs: Sequence[tuple[str, RunDirectory]], path: Path) -> None:
    """Write the report of one run, or of several side by side."""
    write_output(path, page(runs).encode())


def page(named: Sequence[tuple[str, RunDirectory]]) -> str:
    """Return the page of one or several runs, each with its name on the page."""
    return render([RunView.read(name, directory) for name, directory in named])


def render(runs: Runs) -> str:
    """Return the page of runs that have been read."""
    from markupsafe import Markup

    charts = {name: chart for name, draw in RUN_CHARTS.items() if (chart := draw(runs)) is not None}
    if "accuracy" not in charts:
        raise RunError(f"{runs[0].directory.path}: there is no measured round to report on yet")
    specs = {
        name: chart.properties(width="container", height=260).to_dict() for name, chart in charts.items()
    }
    of_one = [*_worst_clients(runs[0]), *_audit(runs[0]), *_refused(runs[0])] if len(runs) == 1 else []
    return _template().render(
        title=_title(runs),
        style=Markup((resources.files("fedrank.report") / "page.css").read_text("utf-8")),
        result=_result(runs),
        charts={name: spec.pop("title") for name, spec in specs.items()},  # text of the page, which wraps
        sections=[*of_one, _settings(runs), _made_with(runs)],
        footer=f"Reported by fedrank {__version__}. A click on a legend hides a series.",
        vega=Markup(_vega()),
        specs=specs,
    )


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {}  # without this, keys would be sorted
    source = (resources.files("fedrank.report") / "page.html.jinja").read_text("utf-8")
    return environment.from_string(source)


def _title(runs: Runs) -> str:
    """Return the name of the run, or the data and what is compared on it."""
    if len(runs) == 1:
        return runs[0].directory.experiment.name
    data = ", ".join(dict.fromkeys(run.directory.experiment.data.name for run in runs))
    if len(runs) <= MOST_NAMED:
        return f"{data}: {', '.join(run.name for run in runs)}"
    by = ", ".join(_different([run.directory.experiment.flat() for run in runs]))
    return f"{data}: {len(runs)} runs by {by}" if by else f"{data}: {len(runs)} runs"


def _result(runs: Runs) -> Section:
    """Return how every run ended."""
    rows = []
    for run in runs:
        summary, records, rounds = run.summary, run.records, run.directory.experiment.rounds
        ended = summary is not None and summary.rounds >= rounds
        measured = summary.evaluation if summary and ended else _last_measured(records)
        clients, sent = measured.clients, records[-1].sent
        up, down = sent.upload_bytes / 2**20, sent.download_bytes / 2**20
        rows.append(
            {
                "run": run.name,
                "method": method_text(run.directory.experiment.flat()),
                "attack": attack_text(run.directory.experiment.flat()),
                "rounds": f"{records[-1].round}" + ("" if ended else f" of {rounds}, unfinished"),
                "accuracy": f"{measured.test_accuracy:.1%}",
                "loss": loss_text(measured.test_loss),
                "clients' mean ± std": _mean(clients),
                "min": f"{clients.min:.1%}" if clients else "",
                "max": f"{clients.max:.1%}" if clients else "",
                "backdoor works on": "" if measured.backdoor is None else f"{measured.backdoor:.1%}",
                "sent, received": _total(records),
                "a client, last round": f"{up:.3f} MiB up, {down:.3f} MiB down",
                "as the paper counts": _paper_traffic(summary, records),
                "time": f"{sum(record.wall_seconds for record in records):,.0f} s",
            }
        )
    for column in ("min", "max", "backdoor works on"):
        if not any(row[column] for row in rows):
            for row in rows:
                del row[column]
    if len(rows) == 1:
        return Section("Result", [PageTable([[key, value] for key, value in rows[0].items()])])
    return Section("Results", [PageTable([list(row.values()) for row in rows], list(rows[0]))])


def _last_measured(records: Sequence[RoundRecord]) -> Evaluation:
    return next(record.evaluation for record in reversed(records) if record.evaluation)


def _mean(clients: Accuracy | None) -> str:
    return f"{clients.mean:.1%} ± {clients.std:.1%}" if clients else NO_CLIENTS_TESTED


def _total(records: Sequence[RoundRecord]) -> str:
    up = sum(record.upload_bytes for record in records) / 2**20
    down = sum(record.download_bytes for record in records) / 2**20
    return f"{up:,.1f} MiB, {down:,.1f} MiB"


def _paper_traffic(summary: Summary | None, records: Sequence[RoundRecord]) -> str:
    if summary is None:
        return ""
    asked = sum(len(record.clients) for record in records)
    up, down = summary.paper_traffic.upload_bytes / 2**20, summary.paper_traffic.download_bytes / 2**20
    return f"{up:.3f} MiB up, {down:.3f} MiB down; all: {up * asked:,.1f} MiB, {down * asked:,.1f} MiB"


def _worst_clients(run: RunView) -> list[Section]:
    if run.evaluation is None or not run.accuracies:
        return []
    worst = sorted(run.accuracies.items(), key=lambda item: item[1])[:WORST_CLIENTS]
    sizes = run.evaluation.samples
    rows = [[str(client), f"{accuracy:.1%}", _shown(sizes.get(client))] for client, accuracy in worst]
    headings = ["client", "accuracy on its own test data", "test samples"]
    least = worst[-1][1]
    as_bad = sum(accuracy <= least for accuracy in run.accuracies.values())
    note = f"{len(worst)} of the {as_bad} clients with {least:.1%} or less." if as_bad > len(worst) else ""
    return [Section("The worst clients", [PageTable(rows, headings, note)])]


def _audit(run: RunView) -> list[Section]:
    """Return how safe the last vote was, and which of its ballots stand apart."""
    votes = votes_in(run.records)
    if not votes:
        return []
    last = votes[max(votes)]
    headings, rows = layer_rows(last.audit)
    tables = [PageTable(rows, headings, layer_note(last.audit))]
    if last.audit.ballots:
        tables.append(PageTable(ballot_rows(last), BALLOT_HEADINGS, BALLOT_NOTE))
    return [Section(f"The vote of round {last.round}", tables)]


def _refused(run: RunView) -> list[Section]:
    rows = [
        [str(record.round), f"client {client}", reason]
        for record in run.records
        for client, reason in record.refused.items()
    ]
    if not rows:
        return []
    more = f"The last {MOST_REFUSED} of {len(rows):,}; metrics.jsonl has all."
    note = more if len(rows) > MOST_REFUSED else ""
    table = PageTable(rows[-MOST_REFUSED:], ["round", "client", "reason"], note)
    return [Section("Votes that did not count", [table])]


def _settings(runs: Runs) -> Section:
    """Return the settings that apply; of several runs, those that differ first."""
    flats = [applied(run.directory.experiment.flat()) for run in runs]
    different = _different(flats)
    keys = [*different, *(key for key in _keys(flats) if key not in different)]
    rows = [[key, *(_shown(flat.get(key)) for flat in flats)] for key in keys]
    headings = ["setting", *(run.name for run in runs)] if len(runs) > 1 else ["setting", "value"]
    return Section("Settings", [PageTable(rows, headings, different=len(different))])


def _keys(flats: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for flat in flats for key in flat))


def _different(flats: Sequence[dict[str, Any]]) -> list[str]:
    """Return the settings that are not the same in all runs."""
    return [key for key in _keys(flats) if len({json.dumps(flat.get(key)) for flat in flats}) > 1]


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def _made_with(runs: Runs) -> Section:
    keys = ("fedrank", "revision", "python", "torch", "numpy", "platform", "device", "workers", "date")
    rows = [[key, *(_shown(run.directory.environment.get(key)) for run in runs)] for key in keys]
    return Section("Made with", [PageTable(rows)])


def _vega() -> str:
    """Return the program that draws the charts; bundling it takes seconds, so it is cached."""
    load_altair()
    import vl_convert
    from platformdirs import user_cache_path

    kept = user_cache_path("fedrank") / f"vega-{metadata.version('vl-convert-python')}.js"
    try:
        return kept.read_text("utf-8")
    except OSError:
        pass
    program = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace(
        "</script", "<\\/script"
    )
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_file(kept, program.encode())
    except OSError:
        pass  # a cache that cannot be written costs time, nothing else
    return program
