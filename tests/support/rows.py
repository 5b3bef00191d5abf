"""Rows of results as tables get them."""

from fedrank import __version__
from fedrank.experiment.records import FinishedCell, UnfinishedCell

CLIENTS = {"mean": 0.955, "std": 0.064, "min": 0.5, "max": 1.0, "clients": 1000}


def finished_row(coordinates: dict, **more: object) -> FinishedCell:
    row = {
        "coordinates": coordinates,
        "preset": "mnist",
        "settings": [],
        "finished": True,
        "published": None,
        "rounds": 30,
        "curve": {"round": [1, 2, 3, 4], "accuracy": [0.1, 0.5, 0.6, 0.7], "loss": [1.0] * 4},
        "evaluation": {"clients": CLIENTS, "test_accuracy": 0.9},
        "sent": {"upload_bytes": 1.0, "download_bytes": 1.0},
        "made_with": {"fedrank": __version__, "torch": "2.13.0", "numpy": "2.4.6", "date": "2026-11-16"},
    }
    return FinishedCell.model_validate(row | more)


def unfinished_row(coordinates: dict, **more: object) -> UnfinishedCell:
    row = {
        "coordinates": coordinates,
        "preset": "mnist",
        "settings": [],
        "published": None,
        "finished": False,
    }
    return UnfinishedCell.model_validate(row | more)
