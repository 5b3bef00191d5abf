"""The ClientApp of the project's own Flower app."""

from flwr.app import Context
from flwr.clientapp import ClientApp

from fedrank.flower.client import Voter, voting
from fedrank.flower.nodes import voter_of
from fedrank.flower.settings import Settings

app = ClientApp()


@voting(app)
def voter(context: Context) -> Voter:
    """Return the client that this node is."""
    return voter_of(Settings.read(context.run_config).experiment, context.node_config)
