"""The paper's tables: what can be computed without training."""

import pytest

from fedrank.nn import NETWORKS, supernetwork
from fedrank.paper.traffic import traffic_by_size, traffic_table

ROWS = ("FedAvg", "FRL", "Sparse-FRL, top 50%", "Sparse-FRL, top 10%", "SignSGD", "TopK 50%", "TopK 10%")
PUBLISHED_UPLOADS = {
    "lenet": (6.20, 4.05, 2.03, 0.40, 0.19, 3.29, 0.81),
    "conv8": (20.1, 13.1, 6.5, 1.3, 0.63, 10.69, 2.64),
    "lenet-62": (6.23, 4.06, 2.03, 0.40, 0.19, 3.31, 0.81),
}
PUBLISHED_DOWNLOADS = {"lenet": (6.20, 4.05), "conv8": (20.1, 13.1), "lenet-62": (6.23, 4.06)}


@pytest.mark.parametrize("network", PUBLISHED_UPLOADS)
def test_the_published_traffic_comes_out(network: str) -> None:
    rows = {row.name: row for row in traffic_table(supernetwork(NETWORKS[network](), seed=0).layout)}
    for name, published in zip(ROWS, PUBLISHED_UPLOADS[network], strict=True):
        decimals = 0.05 if published in (20.1, 13.1, 6.5, 1.3) else 0.0101
        assert rows[name].upload_mebibytes == pytest.approx(published, abs=decimals)
        weights, ranking = PUBLISHED_DOWNLOADS[network]
        download = ranking if "FRL" in name else weights
        assert rows[name].download_mebibytes == pytest.approx(download, abs=0.05 if download > 10 else 0.0101)


def test_the_figure_covers_all_methods_at_all_sizes() -> None:
    points = list(traffic_by_size([1000, 10**6]))
    names = {row.name for _, row in points}
    assert {*ROWS} < names
    assert len(points) == 2 * len(names)
    for name in names:
        small, large = (row.upload for size, row in points if row.name == name)
        assert 900 < large / small < 2300
