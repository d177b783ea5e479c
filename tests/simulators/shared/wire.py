"""The bare socket under a simulator: a port that stays reserved, and a connection that ends without a goodbye."""

from __future__ import annotations

import asyncio
import socket
import struct


def bind(port: int) -> socket.socket:
    """Several sockets may hold the same port: one keeps the port through an outage while another one listens."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


def reset(transport: asyncio.BaseTransport | None) -> None:
    """Ends a connection as a dying network does: without a goodbye; unsent bytes are lost."""
    if transport is None:
        return
    peer = transport.get_extra_info("socket")
    if peer is not None and peer.fileno() >= 0:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if isinstance(transport, asyncio.Transport):
        transport.abort()
