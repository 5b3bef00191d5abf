"""The report of a run: what it says, and that a browser draws it."""

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedrank.cli import app
from fedrank.errors import ConfigError, RunError
from fedrank.experiment.build import build
from fedrank.experiment.config import load_preset
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import Observers, run
from fedrank.report.page import page, write_report
from fedrank.report.run_charts import RUN_CHARTS, RunView
from fedrank.report.settings import applied

CHROMIUM = shutil.which("chromium")
SETTINGS = (
    "rounds=3",
    "data.clients=8",
    "clients_per_round=6",
    "local.epochs=1",
    "attack.name=reverse",
    "attack.share=0.25",
)


def made(path, *settings):
    experiment = load_preset("digits", (*SETTINGS, *settings))
    directory = RunDirectory.create(path, experiment, {"data_dir": "", "device": "cpu", "torch": "2.x"})
    run(directory, build(experiment, path), workers=1, device="cpu", observer=Observers(()))
    return directory


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        ("borda", made(folder / "borda", "method.vote=borda")),
        ("screened", made(folder / "screened", "method.vote=screened-mean")),
    ]


def test_a_report_says_everything_about_a_run(runs):
    name, directory = runs[1]
    text = page([(name, directory)])
    evaluation = directory.read_summary().evaluation
    assert f"{evaluation.test_accuracy:.1%}" in text
    worst = min(evaluation.accuracies.items(), key=lambda item: item[1])
    of_how_many = evaluation.samples[worst[0]]
    assert f"<td>{worst[0]}</td><td>{worst[1]:.1%}</td><td>{of_how_many}</td>" in text
    for heading in ("Result", "The worst clients", "The vote of round 3", "Settings", "Made with"):
        assert f"<h2>{heading}</h2>" in text
    for key, value in applied(directory.experiment.flat()).items():
        assert f"<td>{key}</td><td>{'' if value is None else value}</td>" in text
    assert text.startswith("<!doctype html>")
    drawn = set(re.findall(r'class="chart" id="(\w+)"', text))
    assert drawn == set(RUN_CHARTS) - {"refused"}


def test_a_report_needs_no_network(runs):
    text = page(runs)
    outside_programs = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert "http" not in outside_programs
    assert not re.search(r"<script[^>]+src=|<link", text)


def test_accuracies_of_clients_are_those_that_were_measured(runs):
    evaluation = runs[0][1].read_summary().evaluation
    accuracies = list(evaluation.accuracies.values())
    assert len(accuracies) == evaluation.clients.clients
    assert sum(accuracies) / len(accuracies) == pytest.approx(evaluation.clients.mean)
    assert min(accuracies) == evaluation.clients.min


def test_runs_are_compared_on_one_page(runs):
    text = page(runs)
    assert '<tr class="different"><td>method.vote</td><td>borda</td><td>screened-mean</td></tr>' in text
    assumed = "<td>method.assumed_malicious</td><td></td><td>0.4</td>"  # borda assumes nothing
    assert f'<tr class="different">{assumed}</tr>' in text
    assert text.count('class="different"') == 2
    assert "<th>borda</th><th>screened</th>" in text


def test_the_title_says_what_is_compared(runs):
    assert "<h1>digits: borda, screened</h1>" in page(runs)
    many = [*runs, *((f"{name} again {n}", directory) for n in (1, 2) for name, directory in runs)]
    assert "<h1>digits: 6 runs by method.vote</h1>" in page(many)


def test_losses_of_a_destroyed_model_do_not_flatten_the_others(runs, tmp_path):
    """Losses beyond a multiple of the honest ones are marked at the edge; one that is no number is told."""
    honest, attacked = (
        made(tmp_path / "honest", "attack.name=none", "attack.share=0.0"),
        tmp_path / "attacked",
    )
    shutil.copytree(runs[0][1].path, attacked)
    metrics = attacked / "metrics.jsonl"
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    for record, loss in zip(records, (1e38, float("nan"), float("inf")), strict=True):
        record["evaluation"]["test_loss"] = loss
    metrics.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    summary = json.loads((attacked / "summary.json").read_text())
    summary["evaluation"]["test_loss"] = float("nan")
    (attacked / "summary.json").write_text(json.dumps(summary))
    both = [("honest", honest), ("attacked", RunDirectory.open(attacked))]
    text = page(both)
    assert "<td>diverged</td>" in text
    assert "NaN" not in text.rpartition("const charts = ")[2]
    chart = RUN_CHARTS["loss"]([RunView.read(*each) for each in both]).to_dict()
    lines, triangles = (layer["data"]["values"] for layer in chart["layer"])
    measured = [record.evaluation.test_loss for record in honest.read_metrics()]
    measured += [record.train_loss for record in honest.read_metrics()]
    assert max(point["loss"] for point in lines) == pytest.approx(4 * max(measured))
    assert [(point["round"], point["value"]) for point in triangles] == [
        (1, "1.00e+38"),
        (2, "diverged"),
        (3, "diverged"),
    ]


def test_an_unfinished_run_is_reported_as_such(runs, tmp_path):
    copy = shutil.copytree(runs[0][1].path, tmp_path / "copy")
    (copy / "summary.json").unlink()
    assert "of 3, unfinished" in page([("copy", RunDirectory.open(copy))])
    (copy / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match="no measured round"):
        page([("copy", RunDirectory.open(copy))])


def test_a_run_that_was_prolonged_has_no_worst_clients_until_it_ends(runs, tmp_path):
    """Its summary is that of an earlier round."""
    copy = shutil.copytree(runs[0][1].path, tmp_path / "copy")
    lines = (copy / "metrics.jsonl").read_text()
    (copy / "metrics.jsonl").write_text(
        lines + json.dumps(json.loads(lines.splitlines()[-1]) | {"round": 4}) + "\n"
    )
    text = page([("copy", RunDirectory.open(copy))])
    assert "The worst clients" not in text
    assert 'id="clients"' not in text


def test_of_many_clients_that_are_equally_bad_it_is_said_how_many_are_shown(runs, tmp_path):
    copy = shutil.copytree(runs[0][1].path, tmp_path / "copy")
    summary = json.loads((copy / "summary.json").read_text())
    bad = {str(number): 0.0 for number in range(12)}
    summary["evaluation"] |= {"accuracies": bad, "samples": dict.fromkeys(bad, 3)}
    (copy / "summary.json").write_text(json.dumps(summary))
    assert "10 of the 12 clients with 0.0% or less." in page([("copy", RunDirectory.open(copy))])


def test_bytes_are_told_in_both_accountings_for_a_client_and_in_all(runs):
    name, directory = runs[0]
    text = page([(name, directory)])
    paper = directory.read_summary().paper_traffic.upload_bytes / 2**20
    records = directory.read_metrics()
    assert sum(len(record.clients) for record in records) == 18
    assert f"{paper:.3f} MiB up, {paper:.3f} MiB down; all: {18 * paper:,.1f} MiB" in text
    really = sum(record.upload_bytes for record in records) / 2**20
    assert f"<td>sent, received</td><td>{really:,.1f} MiB" in text
    assert "upload, as the paper counts" in text


def test_a_damaged_run_is_told_as_such(runs, tmp_path):
    copy = shutil.copytree(runs[0][1].path, tmp_path / "copy")
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    broken = [json.loads(lines[0]) | {"clients": []}, json.loads(lines[1]) | {"evaluation": {"clients": 3}}]
    (copy / "metrics.jsonl").write_text("\n".join([*map(json.dumps, broken), lines[2]]) + "\n")
    assert [record.round for record in RunDirectory.open(copy).read_metrics()] == [3]
    page([("copy", RunDirectory.open(copy))])
    (copy / "summary.json").write_text('{"rounds": 3}')
    with pytest.raises(RunError, match=r"summary.json: damaged"):
        page([("copy", RunDirectory.open(copy))])


def test_what_clients_say_is_not_trusted(runs, tmp_path):
    """A refusal may quote a hostile client."""
    copy = shutil.copytree(runs[0][1].path, tmp_path / "copy")
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    lines[0]["refused"] = {"1": "<script>alert(1)</script></script>"}
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = page([("copy", RunDirectory.open(copy))])
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text


def test_no_name_can_end_the_program_of_the_page(runs):
    """Names of runs stand in headings and in the data of charts."""
    name = "</script><script>alert('run')</script>"
    text = page([(name, runs[0][1]), runs[1]])
    assert "<script>alert" not in text
    data = text.rpartition("const charts = ")[2]
    assert data.count("</script>") == 1
    charts, _ = json.JSONDecoder().raw_decode(data)
    points = charts["accuracy"]["data"]["values"]
    assert {point["run"] for point in points} == {name, "screened"}


def test_commands_write_reports_and_charts(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [str(directory.path) for _, directory in runs]
    invoke = CliRunner().invoke
    assert invoke(app, ["report", *paths]).exit_code == 0
    assert (tmp_path / "report.html").stat().st_size > 500_000
    assert invoke(app, ["report", paths[0]]).exit_code == 0
    assert (Path(paths[0]) / "report.html").exists()
    for chart in ("accuracy", "clients", "edges"):
        assert invoke(app, ["plot", *paths, "--chart", chart]).exit_code == 0
        assert "<svg" in (tmp_path / f"{chart}.svg").read_text()
    assert "given twice" in str(invoke(app, ["report", paths[0], paths[0]]).exception)
    assert isinstance(invoke(app, ["plot", *paths, "--chart", "pie"]).exception, ConfigError)
    assert isinstance(invoke(app, ["plot", *paths, "--chart", "refused"]).exception, RunError)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser: apt-get install chromium chromium-driver")
def test_a_browser_draws_the_report_and_a_click_on_a_legend_hides_a_series(runs, tmp_path):
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.support.ui import WebDriverWait

    write_report(runs, tmp_path / "report.html")
    options = webdriver.ChromeOptions()
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-background-networking", "disable-sync"):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        for width in (1200, 390):  # a screen and a phone
            browser.set_window_size(width, 900)
            browser.get((tmp_path / "report.html").as_uri())
            charts = browser.find_elements("css selector", ".chart")
            WebDriverWait(browser, 30).until(
                lambda _, charts=charts: all(
                    chart.find_elements("css selector", "svg path") for chart in charts
                )
            )
            assert len(charts) == len(RUN_CHARTS) - 1
            assert browser.execute_script("return document.body.scrollWidth <= window.innerWidth + 1")
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []

        def opacities():
            lines = browser.find_elements("css selector", "#accuracy .mark-line path")
            return [line.get_attribute("opacity") for line in lines]

        before = opacities()
        label = browser.find_elements("css selector", "#accuracy .role-legend-label text")[0]
        webdriver.ActionChains(browser).move_to_element(label).click().perform()
        WebDriverWait(browser, 10).until(lambda _: opacities() != before)
        assert opacities().count("0") == before.count("0") + 1
        labels = browser.find_elements("css selector", "#accuracy .role-legend-label text")
        dimmed = [float(label.get_attribute("opacity") or 1) < 1 for label in labels]
        assert dimmed == [True, False], "what is hidden is gray in the legend, and nothing else"
        webdriver.ActionChains(browser).move_to_element(labels[0]).click().perform()
        WebDriverWait(browser, 10).until(lambda _: opacities() == before)
    finally:
        browser.quit()
