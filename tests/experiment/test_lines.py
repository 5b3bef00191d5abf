"""Which lines of metrics.jsonl are rounds."""

from itertools import combinations, product

from fedrank.experiment.lines import ascending


def test_as_many_numbers_as_possible_are_kept() -> None:
    for numbers in product(range(1, 5), repeat=5):
        kept = [numbers[position] for position in ascending(numbers)]
        assert kept == sorted(set(kept))
        longest = max(
            len(chosen)
            for size in range(1, 6)
            for chosen in combinations(numbers, size)
            if list(chosen) == sorted(set(chosen))
        )
        assert len(kept) == longest
    assert ascending([]) == []
