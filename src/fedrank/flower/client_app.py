"""The ClientApp of fedrank's own Flower app."""

from flwr.app import Context
from flwr.clientapp import ClientApp

from fedrank.flower.client import Voter, voting
from fedrank.flower.nodes import voter_of
from fedrank.flower.settings import Settings

app = ClientApp()


@voting(app)
def voter(context: Context) -> Voter:
    """Return this node's client."""
    return voter_of(Settings.read(context.run_config).experiment, context.node_config)
