"""Supernetworks: conversion of a model, initial weights and scores, edge-popup, the paper's networks."""

from fedrank.nn.convert import supernetwork
from fedrank.nn.edge_popup import LocalTraining, Trained, edge_popup
from fedrank.nn.masked import MaskedNetwork
from fedrank.nn.memory import channels_last
from fedrank.nn.networks import NETWORKS, ConvNet, LeNet
from fedrank.nn.supernetwork import Scores, Supernetwork

__all__ = [
    "NETWORKS",
    "ConvNet",
    "LeNet",
    "LocalTraining",
    "MaskedNetwork",
    "Scores",
    "Supernetwork",
    "Trained",
    "channels_last",
    "edge_popup",
    "supernetwork",
]
