"""What rankings cost to send, as the paper counts it."""

from __future__ import annotations

from fedrank.rank.layout import Layout, top_count


def packed_bits(layout: Layout, top: float = 1.0) -> int:
    """Return the bits of a ballot: ceil(log2 n) for each edge it names, layer by layer.

    Source: the paper's section on communication efficiency.
    """
    return sum(top_count(layer.size, top) * (layer.size - 1).bit_length() for layer in layout)
