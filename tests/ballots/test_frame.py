"""The frame that ballots, weight messages and exported models share."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrank.ballots.frame import Frame
from fedrank.errors import BallotError

FRAME = Frame(magic=b"TEST", version=3, fields="2xIQ", names=("round", "sender"))


@given(st.binary(max_size=50), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_a_message_is_its_header_payload_and_crc(payload: bytes, number: int, sender: int) -> None:
    header = FRAME.header(number, sender)
    message = FRAME.close(header, payload[:7], payload[7:])
    plain = struct.pack("<4sBxxIQ", b"TEST", 3, number, sender) + payload
    assert message == plain + struct.pack("<I", zlib.crc32(plain))
    assert bytes(FRAME.open(message, header)) == payload
    assert FRAME.claims(message) == {"round": number, "sender": sender}


@given(st.binary(min_size=1, max_size=30), st.data())
def test_no_flipped_bit_goes_unnoticed(payload: bytes, data: st.DataObject) -> None:
    header = FRAME.header(1, 2)
    message = bytearray(FRAME.close(header, payload))
    message[data.draw(st.integers(0, len(message) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BallotError):
        FRAME.open(bytes(message), header)


def test_the_field_that_is_wrong_is_named() -> None:
    message = FRAME.close(FRAME.header(1, 2), b"")
    with pytest.raises(BallotError, match="the sender is 2, expected 3"):
        FRAME.open(message, FRAME.header(1, 3))
    with pytest.raises(BallotError, match="the version is 3, expected 4"):
        FRAME.open(message, Frame(b"TEST", 4, "2xIQ", ("round", "sender")).header(1, 2))
    padded = bytearray(message)
    padded[5] = 1
    with pytest.raises(BallotError, match="bytes set that must be 0"):
        FRAME.open(bytes(padded), FRAME.header(1, 2))
    with pytest.raises(BallotError, match="its header alone has"):
        FRAME.claims(b"TEST")
