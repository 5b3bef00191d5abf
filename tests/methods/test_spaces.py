"""Updates as vectors."""

import numpy as np
import pytest

from fedrank.errors import ConfigError
from fedrank.methods import FedAvg, FRLState, SignSGD
from fedrank.methods.spaces import space_of
from fedrank.nn import supernetwork
from fedrank.rank import reputation
from tests.support.methods import small_frl, small_net
from tests.support.strategies import near, random_ranking


def test_a_ranking_is_the_displacement_of_its_reputations_and_back() -> None:
    frl = small_frl()
    layout, rng = frl.network.layout, np.random.default_rng(0)
    reference = random_ranking(layout, rng)
    space = space_of(frl, frl.receive(frl.broadcast(FRLState(4, reference))))
    ranking = near(reference, layout, rng, 0.1)
    vector = space.to_vector(ranking)
    assert vector.tolist() == (reputation(ranking, layout) - reputation(reference, layout)).tolist()
    assert space.from_vector(vector).tolist() == ranking.tolist()
    assert space.from_vector(np.zeros_like(vector)).tolist() == space.reference.tolist() == reference.tolist()


@pytest.mark.parametrize("kind", [FedAvg, SignSGD])
def test_a_change_of_weights_is_a_vector_already(kind: type) -> None:
    method = kind(supernetwork(small_net(), seed=1))
    space = space_of(method, method.receive(method.broadcast(method.init())))
    rng = np.random.default_rng(0)
    updates = [rng.normal(size=method.network.layout.size).astype(np.float32) for _ in range(5)]
    assert space.from_vector(space.to_vector(updates[0])) is updates[0]
    signs = sum(np.where(update >= 0, 1, -1) for update in updates)
    expected = np.mean(updates, axis=0) if kind is FedAvg else 0.003 * np.sign(signs)
    np.testing.assert_allclose(space.combine(updates), expected, rtol=1e-5, atol=1e-7)


def test_a_method_without_a_space_cannot_be_attacked() -> None:
    with pytest.raises(ConfigError, match="object has no space"):
        space_of(object(), None)  # type: ignore[arg-type]
