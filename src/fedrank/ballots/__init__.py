"""Ballots: formats and their bytes, tallies and stores, audits. Knows NumPy and numba only."""

from fedrank.ballots.codec import BallotCodec, MessageType
from fedrank.ballots.format import BallotFormat, Shape
from fedrank.ballots.store import BallotStore
from fedrank.ballots.tally import Tally

__all__ = ["BallotCodec", "BallotFormat", "BallotStore", "MessageType", "Shape", "Tally"]
