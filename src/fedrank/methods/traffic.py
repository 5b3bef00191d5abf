"""What a method's clients transfer, counted as the paper counts it."""

from __future__ import annotations

from typing import Any

from fedrank.ballots import BallotFormat
from fedrank.ballots.traffic import Traffic, packed_bits
from fedrank.methods.base import Method
from fedrank.methods.frl import FRL
from fedrank.methods.signsgd import SignSGD
from fedrank.methods.topk import TopK


def paper_traffic(method: Method[Any]) -> Traffic:
    """Return what one client transfers in one round: rankings by ceil(log2 n) bits an edge, weights by 32.

    TopK also sends one bit for every weight that says whether it is sent. A method of one's own is counted
    like FedAvg.
    """
    layout = method.network.layout
    weights, bits = 4.0 * layout.size, layout.size / 8
    match method:
        case FRL():
            formats = (BallotFormat.parse(method.ballots), BallotFormat.parse(method.broadcasts))
            upload, download = (packed_bits(layout, each) / 8 for each in formats)
            return Traffic(upload, download)
        case SignSGD():
            return Traffic(bits, weights)
        case TopK():
            return Traffic(4.0 * method.sent + bits, weights)
        case _:
            return Traffic(weights, weights)
