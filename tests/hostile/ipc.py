"""Rows for Flight's DoPut as bytes: whole gRPC calls over a plain socket, so that no library checks what is malformed."""

import struct

import pyarrow

import mutate
from doors import field, varint

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
FRAME_BYTES = 16_384
# What a stream may send before the other end has allowed more.
WINDOW_BYTES = 65_535
CALL = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/arrow.flight.protocol.FlightService/DoPut",
    ":authority": "127.0.0.1",
    "content-type": "application/grpc",
    "te": "trailers",
}


def frame(kind, flags, stream, payload):
    return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload


def header(name, value):
    """A header that is not remembered, of fewer than 127 bytes each."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call(body):
    """All that a client sends for one call."""
    body = body[:WINDOW_BYTES]
    parts = [body[place : place + FRAME_BYTES] for place in range(0, len(body), FRAME_BYTES)] or [b""]
    headers = b"".join(header(name, value) for name, value in CALL.items())
    frames = [frame(SETTINGS, 0, 0, b""), frame(HEADERS, END_HEADERS, 1, headers)]
    frames += [frame(DATA, 0, 1, part) for part in parts[:-1]] + [frame(DATA, END_STREAM, 1, parts[-1])]
    return PREFACE + b"".join(frames)


def in_grpc(message):
    return b"\0" + struct.pack("!I", len(message)) + message


def split_message(encapsulated):
    """The metadata and the body of a message of Arrow's stream format."""
    data = encapsulated.to_pybytes()
    (length,) = struct.unpack_from("<i", data, 4)
    return data[8 : 8 + length], data[8 + length :]


def batches(dice):
    """Rows of hostile_sink, or of columns that it does not have."""
    count = dice.choice((0, 1, 3, 100))
    numbers = pyarrow.array(range(count), pyarrow.int64())
    texts = pyarrow.array(["x" * (place % 40) for place in range(count)])
    columns = {
        "k": numbers, "ts": numbers.cast(pyarrow.timestamp("ms")), "n": numbers, "v": numbers.cast(pyarrow.float64()), "s": texts,
    }  # fmt: skip
    odd = {
        "d": texts.dictionary_encode(), "l": pyarrow.array([[1, 2]] * count, pyarrow.list_(pyarrow.int64())),
        "b": pyarrow.array([True] * count, pyarrow.bool_()), "z": texts.cast(pyarrow.string_view()), "e": pyarrow.nulls(count),
        "t": pyarrow.array([{"a": 1}] * count, pyarrow.struct([("a", pyarrow.int64())])),
    }  # fmt: skip
    for name in dice.sample(list(odd), dice.randint(0, 2)):
        columns[name] = odd[name]
    return pyarrow.record_batch(columns)


def do_put(dice, _statement):
    """The body of a DoPut: descriptor and schema, then batches; metadata or bodies of some of them are spoiled."""
    batch = batches(dice)
    path = b"\x08\x01" + field(3, b"public") + field(3, b"hostile_sink")
    pieces = [split_message(batch.schema.serialize()), *[split_message(batch.serialize())] * dice.randint(0, 3)]
    messages = b""
    for place, (metadata, body) in enumerate(pieces):
        turn = dice.random()
        if turn < 0.35:
            metadata = mutate.spoil(dice, metadata)
        elif turn < 0.55:
            body = mutate.spoil(dice, body)
        flight_data = (field(1, path) if place == 0 else b"") + field(2, metadata) + varint(1000 << 3 | 2) + varint(len(body)) + body
        messages += in_grpc(flight_data)
    return mutate.spoil(dice, messages) if dice.random() < 0.1 else messages
