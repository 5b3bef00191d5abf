"""The numbers in the paper's tables (Mozaffari et al., 2023): accuracies in percent, deviations over clients.

They appear beside ours and are never mixed with them. The paper's figures print no numbers.
"""

from __future__ import annotations

Numbers = dict[str, float]
Published = dict[tuple[str, ...], Numbers]
"""The numbers of a table, by the coordinates of its runs."""

MALICIOUS = ("0%", "10%", "20%")

_ROBUSTNESS = {
    ("mnist", "FedAvg"): ((98.8, 3.2), (10.0, 10.0), (10.0, 10.0)),
    ("mnist", "Trimmed-mean"): ((98.8, 3.2), (95.1, 7.7), (87.6, 9.5)),
    ("mnist", "Multi-Krum"): ((98.8, 3.2), (98.6, 3.3), (97.9, 4.1)),
    ("mnist", "SignSGD"): ((97.2, 4.6), (96.6, 5.0), (96.2, 5.6)),
    ("mnist", "FRL"): ((98.8, 3.1), (98.8, 3.1), (98.7, 3.3)),
    ("mnist", "Sparse-FRL, top 50%"): ((98.2, 3.8), (97.04, 4.4), (95.1, 7.8)),
    ("cifar10", "FedAvg"): ((85.4, 11.2), (10.0, 10.1), (10.0, 10.1)),
    ("cifar10", "Trimmed-mean"): ((84.9, 11.0), (56.3, 16.0), (20.5, 13.2)),
    ("cifar10", "Multi-Krum"): ((84.7, 11.3), (58.8, 15.8), (25.6, 14.4)),
    ("cifar10", "SignSGD"): ((79.1, 12.8), (39.7, 15.9), (10.0, 10.1)),
    ("cifar10", "FRL"): ((85.3, 11.3), (79.0, 12.4), (69.5, 14.8)),
    ("cifar10", "Sparse-FRL, top 50%"): ((77.6, 13.0), (41.7, 15.4), (39.7, 15.2)),
    ("femnist", "FedAvg"): ((85.8, 10.2), (6.3, 5.8), (6.3, 5.8)),
    ("femnist", "Trimmed-mean"): ((85.2, 11.0), (72.7, 15.7), (56.2, 20.3)),
    ("femnist", "Multi-Krum"): ((85.2, 10.9), (80.9, 12.2), (23.7, 12.8)),
    ("femnist", "SignSGD"): ((79.3, 12.4), (76.7, 13.2), (55.1, 14.9)),
    ("femnist", "FRL"): ((84.2, 10.7), (83.0, 10.9), (65.8, 17.8)),
    ("femnist", "Sparse-FRL, top 50%"): ((75.2, 12.7), (70.5, 14.4), (60.39, 14.8)),
}

_TRAFFIC = {
    "mnist": (
        ("FedAvg", 98.8, 3.1, 6.20, 6.20),
        ("FRL", 98.8, 3.2, 4.05, 4.05),
        ("Sparse-FRL, top 50%", 98.2, 3.8, 2.03, 4.05),
        ("Sparse-FRL, top 10%", 89.5, 9.2, 0.40, 4.05),
        ("SignSGD", 97.2, 4.6, 0.19, 6.20),
        ("TopK 50%", 98.8, 3.2, 3.29, 6.20),
        ("TopK 10%", 98.7, 3.2, 0.81, 6.20),
    ),
    "cifar10": (
        ("FedAvg", 85.4, 11.2, 20.1, 20.1),
        ("FRL", 85.3, 11.3, 13.1, 13.1),
        ("Sparse-FRL, top 50%", 77.6, 13.0, 6.5, 13.1),
        ("Sparse-FRL, top 10%", 27.5, 14.4, 1.3, 13.1),
        ("SignSGD", 79.1, 13.6, 0.63, 20.1),
        ("TopK 50%", 82.1, 11.8, 10.69, 20.1),
        ("TopK 10%", 77.8, 13.0, 2.64, 20.1),
    ),
    "femnist": (
        ("FedAvg", 85.8, 10.2, 6.23, 6.23),
        ("FRL", 84.2, 10.7, 4.06, 4.06),
        ("Sparse-FRL, top 50%", 75.2, 12.7, 2.03, 4.06),
        ("Sparse-FRL, top 10%", 59.2, 15.0, 0.40, 4.06),
        ("SignSGD", 79.3, 12.4, 0.19, 6.23),
        ("TopK 50%", 85.7, 9.9, 3.31, 6.23),
        ("TopK 10%", 85.5, 10.0, 0.81, 6.23),
    ),
}

_NON_IID = {
    ("mnist", "dirichlet", "FedAvg"): (98.8, 3.1, 75.0, 100),
    ("mnist", "dirichlet", "FRL"): (98.8, 3.1, 75.0, 100),
    ("mnist", "shards", "FedAvg"): (98.4, 4.3, 70.0, 100),
    ("mnist", "shards", "FRL"): (98.3, 4.1, 80.0, 100),
    ("cifar10", "dirichlet", "FedAvg"): (85.4, 11.2, 33.3, 100),
    ("cifar10", "dirichlet", "FRL"): (85.3, 11.3, 33.3, 100),
    ("cifar10", "shards", "FedAvg"): (70.6, 21.9, 0, 100),
    ("cifar10", "shards", "FRL"): (70.9, 19.2, 10.0, 100),
}

_WEIGHTS = {
    ("mnist", "FedAvg"): (98.8, 3.1, 75.0, 100),
    ("mnist", "glorot-normal"): (96.6, 5.2, 57.1, 100),
    ("mnist", "kaiming-normal"): (98.7, 3.2, 75.0, 100),
    ("mnist", "signed-kaiming-constant"): (98.8, 3.1, 75.0, 100),
    ("cifar10", "FedAvg"): (85.4, 11.2, 33.3, 100),
    ("cifar10", "glorot-normal"): (63.6, 15.6, 0, 100),
    ("cifar10", "kaiming-normal"): (82.0, 11.9, 0, 100),
    ("cifar10", "signed-kaiming-constant"): (85.3, 11.3, 33.3, 100),
    ("femnist", "FedAvg"): (85.8, 10.2, 10.0, 100),
    ("femnist", "glorot-normal"): (69.2, 14.2, 0, 100),
    ("femnist", "kaiming-normal"): (82.9, 11.1, 14.3, 100),
    ("femnist", "signed-kaiming-constant"): (84.2, 10.7, 7.1, 100),
}

_HYPERPARAMETERS = {
    ("FRL", "batch size"): {"6": (78.4, 12.6), "8": (79.0, 12.4), "16": (76.4, 13.6)},
    ("FRL", "local epochs"): {"2": (79.8, 12.2), "5": (79.0, 12.4), "10": (78.2, 12.6)},
    ("FRL", "learning rate"): {
        "0.1": (73.5, 13.4),
        "0.2": (82.4, 12.1),
        "0.3": (83.11, 11.8),
        "0.4": (79.0, 12.4),
        "0.5": (77.5, 13.1),
    },
    ("FedAvg", "-"): {"-": (10.0, 10.1)},
    ("TopK", "-"): {"-": (10.0, 10.1)},
    ("Trimmed-mean", "batch size"): {"6": (55.5, 14.5), "8": (56.3, 16.0), "16": (37.7, 15.6)},
    ("Trimmed-mean", "local epochs"): {"2": (41.0, 15.4), "5": (56.3, 16.0), "10": (21.0, 9.9)},
    ("Trimmed-mean", "learning rate"): {
        "0.01": (34.0, 15.5),
        "0.05": (38.3, 15.3),
        "0.1": (56.3, 16.0),
        "0.15": (10.0, 10.0),
        "0.2": (10.0, 10.0),
    },
    ("Multi-Krum", "batch size"): {"6": (19.0, 12.5), "8": (58.8, 15.8), "16": (36.7, 14.8)},
    ("Multi-Krum", "local epochs"): {"2": (46.1, 15.9), "5": (58.8, 15.8), "10": (24.3, 11.7)},
    ("Multi-Krum", "learning rate"): {
        "0.01": (15.3, 11.7),
        "0.05": (50.0, 16.2),
        "0.1": (58.8, 15.8),
        "0.15": (15.4, 11.9),
        "0.2": (10.0, 10.0),
    },
    ("SignSGD", "batch size"): {"6": (33.1, 15.6), "8": (39.7, 15.9), "16": (10.2, 10.1)},
    ("SignSGD", "local epochs"): {"2": (10.2, 10.5), "5": (39.7, 15.9), "10": (41.5, 16.0)},
    ("SignSGD", "learning rate"): {
        "0.01": (44.2, 15.8),
        "0.05": (41.9, 15.5),
        "0.1": (39.7, 15.9),
        "0.15": (35.8, 15.3),
        "0.2": (10.2, 10.1),
    },
}

_OTHER_SETTINGS = {
    "participants": {"15": (84.8, 11.3), "25": (85.3, 11.3), "50": (84.9, 11.2)},
    "local epochs": {"2": (82.2, 12.0), "5": (85.3, 11.3), "10": (83.5, 11.9)},
    "beta": {"1": (85.3, 11.3), "10": (85.6, 11.1), "100": (85.6, 10.9)},
}


def _clients(mean: float, std: float, low: float | None = None, high: float | None = None) -> Numbers:
    known = {"mean": mean, "std": std, "min": low, "max": high}
    return {name: value for name, value in known.items() if value is not None}


ROBUSTNESS: Published = {
    (data, algorithm, share): _clients(*numbers)
    for (data, algorithm), row in _ROBUSTNESS.items()
    for share, numbers in zip(MALICIOUS, row, strict=True)
}
TRAFFIC: Published = {
    (data, algorithm): {**_clients(mean, std), "upload": upload, "download": download}
    for data, rows in _TRAFFIC.items()
    for algorithm, mean, std, upload, download in rows
}
NON_IID: Published = {coordinates: _clients(*numbers) for coordinates, numbers in _NON_IID.items()}
WEIGHTS: Published = {coordinates: _clients(*numbers) for coordinates, numbers in _WEIGHTS.items()}
HYPERPARAMETERS: Published = {
    (algorithm, name, value): _clients(*numbers)
    for (algorithm, name), values in _HYPERPARAMETERS.items()
    for value, numbers in values.items()
}
OTHER_SETTINGS: Published = {
    (name, value): _clients(*numbers)
    for name, values in _OTHER_SETTINGS.items()
    for value, numbers in values.items()
}

_LENET = (
    ("Convolution(32) + ReLU", 288),
    ("Convolution(64) + ReLU", 18432),
    ("MaxPool(2x2)", None),
    ("FC(128) + ReLU", 1605632),
)
ARCHITECTURES: dict[str, tuple[tuple[str, int | None], ...]] = {
    "lenet": (*_LENET, ("FC(10)", 1280)),
    "conv8": (
        ("Convolution(64) + ReLU", 1728),
        ("Convolution(64) + ReLU", 36864),
        ("MaxPool(2x2)", None),
        ("Convolution(128) + ReLU", 73728),
        ("Convolution(128) + ReLU", 147456),
        ("MaxPool(2x2)", None),
        ("Convolution(256) + ReLU", 294912),
        ("Convolution(256) + ReLU", 589824),
        ("MaxPool(2x2)", None),
        ("Convolution(512) + ReLU", 1179648),
        ("Convolution(512) + ReLU", 2359296),
        ("MaxPool(2x2)", None),
        ("FC(256) + ReLU", 524288),
        ("FC(256) + ReLU", 65536),
        ("FC(10)", 2560),
    ),
    "lenet-62": (*_LENET, ("FC(62)", 7936)),
}
"""Table 5: the layers of the networks for MNIST, CIFAR10 and FEMNIST, with the number of parameters."""
