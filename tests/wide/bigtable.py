"""Bigtable's API without Google's client: messages of its generated classes, sent as the bytes that they were made to.

The client makes objects of each cell, which takes it longer than the server takes for the cell. Here requests are made
before they are sent, and responses may stay bytes.
"""

import grpc
from google.cloud.bigtable_v2.types import bigtable as messages

from readings import FAMILY
from server import Broken

MutateRowsRequest = messages.MutateRowsRequest.pb()
MutateRowsResponse = messages.MutateRowsResponse.pb()
ReadRowsRequest = messages.ReadRowsRequest.pb()
ReadRowsResponse = messages.ReadRowsResponse.pb()
SERVICE = "/google.bigtable.v2.Bigtable/"
# Responses have up to 16 MiB.
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def table_name(database, table):
    return f"projects/p/instances/{database}/tables/{table}"


def mutate_rows(table, rows):
    """A MutateRows request, as bytes. `rows`: keys with cells, each (qualifier, microseconds, value)."""
    request = MutateRowsRequest(table_name=table)
    for key, cells in rows:
        entry = request.entries.add(row_key=key)
        for qualifier, micros, value in cells:
            cell = entry.mutations.add().set_cell
            cell.family_name = FAMILY
            cell.column_qualifier = qualifier
            cell.timestamp_micros = micros
            cell.value = value
    return request.SerializeToString()


def read_rows(table, key=None, prefix=None, qualifier=None):
    """A ReadRows request for a row or the rows with a prefix, and for one column or all, as bytes."""
    request = ReadRowsRequest(table_name=table)
    if key is not None:
        request.rows.row_keys.append(key)
    if prefix is not None:
        span = request.rows.row_ranges.add()
        # All prefixes here end with a byte that can be greater.
        span.start_key_closed, span.end_key_open = prefix, prefix[:-1] + bytes([prefix[-1] + 1])
    if qualifier is not None:
        columns = request.filter.column_range_filter
        columns.family_name = FAMILY
        columns.start_qualifier_closed = columns.end_qualifier_closed = qualifier
    return request.SerializeToString()


def cells_of(responses):
    """Cells of ReadRows responses as (row key, qualifier, microseconds, value)."""
    cells, key, qualifier = [], b"", b""
    for response in responses:
        for chunk in ReadRowsResponse.FromString(response).chunks:
            key = chunk.row_key or key
            if chunk.HasField("qualifier"):
                qualifier = chunk.qualifier.value
            cells.append((key, qualifier, chunk.timestamp_micros, chunk.value))
    return cells


class Connection:
    """One connection, for one request at a time."""

    def __init__(self, port):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS)
        self.mutate = self.channel.unary_stream(f"{SERVICE}MutateRows", None, MutateRowsResponse.FromString)
        self.scan = self.channel.unary_stream(f"{SERVICE}ReadRows", None, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def write(self, request):
        """Sends a MutateRows request; all its rows must be stored."""
        for response in self.mutate(request):
            failed = [entry.status for entry in response.entries if entry.status.code != 0]
            if failed:
                raise Broken(f"{len(failed)} rows were refused: {failed[0].message}")

    def read(self, request):
        """Sends a ReadRows request, and returns the responses as bytes."""
        return list(self.scan(request))
