"""Supernetworks: model conversion, initial weights and scores, edge-popup, the paper's networks."""

from fedrank.nn.base import Network
from fedrank.nn.convert import supernetwork
from fedrank.nn.fit import check_fit
from fedrank.nn.masked import MaskedNetwork
from fedrank.nn.memory_format import channels_last
from fedrank.nn.networks import NETWORKS, ConvNet, LeNet
from fedrank.nn.plain import PlainNetwork
from fedrank.nn.precision import Precision
from fedrank.nn.supernet import Scores, Supernetwork, check_supernetwork
from fedrank.nn.training import LocalTraining, Trained, edge_popup
from fedrank.nn.workspace import Workspace

__all__ = [
    "NETWORKS",
    "ConvNet",
    "LeNet",
    "LocalTraining",
    "MaskedNetwork",
    "Network",
    "PlainNetwork",
    "Precision",
    "Scores",
    "Supernetwork",
    "Trained",
    "Workspace",
    "channels_last",
    "check_fit",
    "check_supernetwork",
    "edge_popup",
    "supernetwork",
]
