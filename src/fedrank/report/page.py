"""The report of runs: one page that needs no network, for screens, phones and paper."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from fedrank import __version__
from fedrank.errors import ConfigError, RunError
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.records import RoundRecord, Summary
from fedrank.experiment.rundir import RunDirectory, replace_file, write_output
from fedrank.report.audits import BALLOT_HEADINGS, BALLOT_NOTE, ballot_rows, layer_note, layer_rows, votes_in
from fedrank.report.charts import load_altair
from fedrank.report.run_charts import RUN_CHARTS, Runs, RunView
from fedrank.report.words import loss_text

REPORT = "report.html"
WORST_CLIENTS = 10
MOST_REFUSED = 100
MOST_NAMED = 4
"""More runs than that are not named in a title."""


def own_report(directory: RunDirectory) -> str:
    """Write the page that a run ends with; return a sentence that says where everything is."""
    try:
        write_report([(directory.experiment.name, directory)], directory.path / REPORT)
    except ConfigError as error:
        return f"Results lie in {directory.path}. There is no {REPORT} among them: {error}"
    return f"Results lie in {directory.path}, a page about them is {REPORT}"


def write_report(runs: Sequence[tuple[str, RunDirectory]], path: Path) -> None:
    """Write the report of one run, or of several side by side."""
    write_output(path, page(runs).encode())


def page(named: Sequence[tuple[str, RunDirectory]]) -> str:
    """Return the page of runs, each with the name that it has there."""
    runs = [RunView.read(name, directory) for name, directory in named]
    charts = {name: chart for name, draw in RUN_CHARTS.items() if (chart := draw(runs)) is not None}
    if "accuracy" not in charts:
        raise RunError(f"{runs[0].directory.path}: there is no measured round to report on yet")
    title = _title(runs)
    specs = {
        name: chart.properties(width="container", height=260).to_dict() for name, chart in charts.items()
    }
    body = [f"<h1>{_text(title)}</h1>", *_finals(runs), '<div class="charts">']
    body += [_place_of(name, spec.pop("title")) for name, spec in specs.items()]
    body += ["</div>"]
    if len(runs) == 1:
        body += [*_worst_clients(runs[0]), *_audit(runs[0]), *_refused(runs[0])]
    body += [*_settings(runs), *_made_with(runs)]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title><style>{_style()}</style></head><body>",
            *body,
            f"<script>{_vega()}</script>",
            f"<script>const charts = {_script(specs)};",
            "for (const [id, spec] of Object.entries(charts)) vegaEmbed('#' + id, spec, "
            "{actions: false, renderer: 'svg'});</script>",
            "</body></html>",
        ]
    )


def _title(runs: Runs) -> str:
    """Return what a page is about: the name of its run, or the data, and what is compared on it."""
    if len(runs) == 1:
        return runs[0].directory.experiment.name
    data = ", ".join(dict.fromkeys(run.directory.experiment.data.name for run in runs))
    if len(runs) <= MOST_NAMED:
        return f"{data}: {', '.join(run.name for run in runs)}"
    by = ", ".join(_different([run.directory.experiment.flat() for run in runs]))
    return f"{data}: {len(runs)} runs by {by}" if by else f"{data}: {len(runs)} runs"


def _place_of(name: str, title: dict[str, str]) -> str:
    """Return where a chart is drawn; its title is text of the page, which a phone can wrap."""
    words = f"<h3>{_text(title['text'])}</h3>{_note(title['subtitle'])}"
    return f'<div>{words}<div class="chart" id="{name}"></div></div>'


def _finals(runs: Runs) -> list[str]:
    """Return how every run has ended."""
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
                "rounds": f"{records[-1].round}" + ("" if ended else f" of {rounds}, unfinished"),
                "accuracy": f"{measured.test_accuracy:.1%}",
                "loss": loss_text(measured.test_loss),
                "clients' mean ± std": f"{clients.mean:.1%} ± {clients.std:.1%}",
                "min": f"{clients.min:.1%}",
                "max": f"{clients.max:.1%}",
                "backdoor works on": "" if measured.backdoor is None else f"{measured.backdoor:.1%}",
                "sent, received": _total(records),
                "a client, last round": f"{up:.3f} MiB up, {down:.3f} MiB down",
                "as the paper counts": _paper_traffic(summary, records),
                "time": f"{sum(record.wall_seconds for record in records):,.0f} s",
            }
        )
    if not any(row["backdoor works on"] for row in rows):
        for row in rows:
            del row["backdoor works on"]
    if len(rows) == 1:
        return ["<h2>Result</h2>", _table([[key, value] for key, value in rows[0].items()])]
    return ["<h2>Results</h2>", _table([list(row.values()) for row in rows], list(rows[0]))]


def _last_measured(records: Sequence[RoundRecord]) -> Evaluation:
    return next(record.evaluation for record in reversed(records) if record.evaluation)


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


def _worst_clients(run: RunView) -> list[str]:
    if run.evaluation is None or not run.accuracies:
        return []
    worst = sorted(run.accuracies.items(), key=lambda item: item[1])[:WORST_CLIENTS]
    sizes = run.evaluation.samples
    rows = [[str(client), f"{accuracy:.1%}", _shown(sizes.get(client))] for client, accuracy in worst]
    headings = ["client", "accuracy on its own test data", "test samples"]
    found = ["<h2>The worst clients</h2>", _table(rows, headings)]
    least = worst[-1][1]
    as_bad = sum(accuracy <= least for accuracy in run.accuracies.values())
    if as_bad > len(worst):
        found.append(_note(f"{len(worst)} of the {as_bad} clients with {least:.1%} or less."))
    return found


def _audit(run: RunView) -> list[str]:
    """Return how safe the last vote was, and which of its ballots stand apart."""
    votes = votes_in(run.records)
    if not votes:
        return []
    last = votes[max(votes)]
    headings, rows = layer_rows(last.audit)
    found = [f"<h2>The vote of round {last.round}</h2>", _table(rows, headings)]
    found.append(_note(layer_note(last.audit)))
    if last.audit.ballots:
        found += [_table(ballot_rows(last), BALLOT_HEADINGS), _note(BALLOT_NOTE)]
    return found


def _refused(run: RunView) -> list[str]:
    rows = [
        [str(record.round), f"client {client}", reason]
        for record in run.records
        for client, reason in record.refused.items()
    ]
    if not rows:
        return []
    found = ["<h2>Votes that did not count</h2>", _table(rows[-MOST_REFUSED:], ["round", "client", "reason"])]
    if len(rows) > MOST_REFUSED:
        found.append(_note(f"The last {MOST_REFUSED} of {len(rows):,}; metrics.jsonl has all."))
    return found


def _settings(runs: Runs) -> list[str]:
    """Return all settings; of several runs those first that are not the same."""
    flats = [run.directory.experiment.flat() for run in runs]
    keys, different = _keys(flats), _different(flats)
    rows = []
    for key in [*different, *(key for key in keys if key not in different)]:
        marked = "different" if key in different else ""
        rows.append(_row([key, *(_shown(flat.get(key)) for flat in flats)], marked))
    names = ["setting", *(run.name for run in runs)] if len(runs) > 1 else ["setting", "value"]
    return ["<h2>Settings</h2>", _wrapped(_head(names) + "".join(rows))]


def _keys(flats: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for flat in flats for key in flat))


def _different(flats: Sequence[dict[str, Any]]) -> list[str]:
    """Return the settings that are not the same in all runs; a run's own name is none."""
    return [key for key in _keys(flats) if len({json.dumps(flat.get(key)) for flat in flats}) > 1]


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def _made_with(runs: Runs) -> list[str]:
    keys = ("fedrank", "revision", "python", "torch", "numpy", "platform", "device", "workers", "date")
    rows = [[key, *(_shown(run.directory.environment.get(key)) for run in runs)] for key in keys]
    note = _note(f"Reported by fedrank {__version__}. A click on a legend hides a series.")
    return ["<h2>Made with</h2>", _table(rows), note]


def _table(rows: Iterable[Sequence[str]], headings: Sequence[str] = ()) -> str:
    return _wrapped((_head(headings) if headings else "") + "".join(_row(row) for row in rows))


def _wrapped(rows: str) -> str:
    return f'<div class="scroll"><table>{rows}</table></div>'


def _head(headings: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<th>{_text(heading)}</th>" for heading in headings) + "</tr>"


def _row(cells: Sequence[str], marked: str = "") -> str:
    kind = f' class="{marked}"' if marked else ""
    return f"<tr{kind}>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>"


def _note(words: str) -> str:
    return f'<p class="note">{_text(words)}</p>'


def _text(words: str) -> str:
    return html.escape(words)


def _script(value: Any) -> str:
    """Return JSON that no content can end the script with."""
    return json.dumps(value).replace("</", "<\\/")


def _style() -> str:
    return (resources.files("fedrank.report") / "page.css").read_text("utf-8")


def _vega() -> str:
    """Return the program that draws the charts; it takes seconds to put together, so a copy is kept."""
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
