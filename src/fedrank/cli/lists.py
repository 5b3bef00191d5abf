"""Commands that list what is available."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrank.cli.base import Imports, app, complete_preset, out, say
from fedrank.errors import ConfigError

BORDA_ROW = (
    "borda",
    "The sum of the ballots' reputations, the vote of FRL as published: for method.vote only.",
    "Mozaffari et al., 2023.",
)


@app.command(rich_help_panel="Reference")
def presets() -> None:
    """List the built-in configurations."""
    from fedrank.experiment.config import preset_names, preset_text
    from fedrank.report.lists import listing

    rows = ((name, preset_text(name).splitlines()[0].removeprefix("# "), "") for name in preset_names())
    out.print(listing(rows))


@app.command(rich_help_panel="Reference")
def show(
    preset: Annotated[
        str, typer.Argument(help="A preset; see 'fedrank presets'.", autocompletion=complete_preset)
    ],
) -> None:
    """Print a preset with all its settings, as TOML for 'fedrank run'.

    [bold]fedrank show mnist > my.toml[/]
    """
    from fedrank.experiment.config import load_preset

    typer.echo(load_preset(preset).to_toml(), nl=False)


@app.command(rich_help_panel="Reference")
def methods() -> None:
    """List the federated algorithms: values of [bold]method.name[/]."""
    from fedrank.methods import METHODS
    from fedrank.report.lists import listing

    rows = ((name, (method.__doc__ or "").splitlines()[0], "") for name, method in METHODS.items())
    out.print(listing(rows))


@app.command(rich_help_panel="Reference")
def attacks(imports: Imports = None) -> None:
    """List the attacks of malicious clients: values of [bold]attack.name[/]."""
    _import(imports)
    from fedrank.attacks import ATTACKS, Attack
    from fedrank.parameters import described
    from fedrank.report.lists import listing

    def origin(attack: Attack) -> str:
        facts = f"{attack.source}. Targets {attack.target}; knows {attack.knows}."
        return f"{facts}{described(attack.function)}"

    out.print(listing((a.name, a.summary, origin(a)) for a in ATTACKS.values()))


@app.command(rich_help_panel="Reference")
def aggregators(imports: Imports = None) -> None:
    """List the aggregation rules: [bold]method.aggregator[/] or [bold]method.vote[/], joined by +."""
    _import(imports)
    from fedrank.aggregators import RULES
    from fedrank.parameters import described
    from fedrank.report.lists import listing

    rows = (
        (
            f"{rule.name}+" if rule.is_preaggregator else rule.name,
            rule.summary,
            f"{rule.source}.{'' if rule.is_preaggregator else described(rule.function)}",
        )
        for rule in RULES.values()
    )
    out.print(listing([*rows, BORDA_ROW]))


def _import(imports: list[str] | None) -> None:
    from fedrank.importing import imported_module

    for name in imports or ():
        imported_module(name)


def _complete_network() -> list[str]:
    from fedrank.nn import NETWORKS

    return list(NETWORKS)


@app.command(rich_help_panel="Reference")
def bound(
    clients: Annotated[
        int, typer.Option("--clients", "-n", min=1, help="Number of ballots in the vote.")
    ] = 25,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Also save a chart: .svg, .png or .html.")
    ] = None,
) -> None:
    """Print how likely a vote is to drop a good edge: the paper's bound and the exact probability.

    [bold]fedrank bound --clients 100 --plot bound.svg[/]
    """
    from fedrank.paper.recipes import RECIPES
    from fedrank.paper.tables import bound_table

    out.print(bound_table(RECIPES["bound"], clients))
    if plot_file is not None:
        from fedrank.paper.figures import bound_chart
        from fedrank.report.charts import save

        save(bound_chart(clients), plot_file)
        say(f"  Wrote {plot_file}")


@app.command(rich_help_panel="Reference")
def traffic(
    network: Annotated[
        str, typer.Option("--net", help="The network.", autocompletion=_complete_network)
    ] = "lenet",
    plot_file: Annotated[
        Path | None,
        typer.Option("--plot", help="Also save a chart of cost against parameters: .svg, .png or .html."),
    ] = None,
) -> None:
    """Print a client's traffic per round, for every method and ballot format.

    [bold]fedrank traffic --net conv8[/]
    [bold]fedrank traffic --plot traffic.svg[/]
    """
    from fedrank.nn import NETWORKS, supernetwork
    from fedrank.paper.traffic import traffic_listing, traffic_table
    from fedrank.parameters import did_you_mean

    if network not in NETWORKS:
        raise ConfigError(f"unknown network {network!r}{did_you_mean(network, NETWORKS)}")
    layout = supernetwork(NETWORKS[network](), seed=0).layout
    out.print(traffic_listing(network, layout.size, traffic_table(layout)))
    if plot_file is not None:
        from fedrank.paper.figures import communication_chart
        from fedrank.report.charts import save

        save(communication_chart(), plot_file)
        say(f"  Wrote {plot_file}")
