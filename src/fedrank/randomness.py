"""Randomness keyed by what it is for, never drawn from a global stream.

Whoever needs random numbers names a purpose and its coordinates (a round, a client) and gets a
generator of its own. So the numbers do not depend on who asked before, on the number of workers,
or on where a run was interrupted.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Purpose(enum.IntEnum):
    """What random numbers are for. A value is part of every result: never reuse or renumber one."""

    WEIGHTS = 1
    SCORES = 2
    PARTITION = 3
    HOLD_OUT = 4
    SELECTION = 5
    LOCAL_TRAINING = 6
    MALICIOUS = 7
    AGGREGATION = 8
    ATTACK = 9
    VALIDATORS = 10
    TRIALS = 11
    SEEN_TRIALS = 12
    MEASURING = 13
    STAND_INS = 14
    TUNING = 15


def keyed_generator(seed: int, purpose: Purpose, *coordinates: int) -> np.random.Generator:
    """Return the generator that belongs to (seed, purpose, coordinates)."""
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(int(purpose), *coordinates))
    return np.random.Generator(np.random.Philox(sequence))


def entropy_of(sender: int, message: Any) -> int:
    """Return 128 bits that follow from a client's message.

    Their sum over all messages of a round is the same in any order, and nobody can predict it who does not
    know every message. Used for draws that no client may know when it sends its own.
    """
    digest = hashlib.blake2b(message, digest_size=16, salt=sender.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


def raw_words(seed: int, purpose: Purpose, stream: int, count: int) -> NDArray[np.uint32]:
    """Return `count` raw 32-bit words of the Philox generator keyed by (seed, purpose, stream).

    Raw words are the same on every machine and in every NumPy version, unlike the distributions
    that NumPy derives from them.
    """
    key = np.array([seed, int(purpose) << 32 | stream], dtype=np.uint64)
    quads = np.random.Philox(key=key).random_raw((count + 1) // 2)
    return np.asarray(quads, dtype="<u8").view("<u4")[:count].astype(np.uint32, copy=False)
