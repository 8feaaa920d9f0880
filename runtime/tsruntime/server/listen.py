"""The server's socket: bound before anything is loaded, so that a port in use shows at once."""

from __future__ import annotations

import socket

from tsruntime.server.errors import CannotListen


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket bound to `host` and `port` (0: any free one), not listening yet.

    Raises CannotListen.
    """
    sock: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise CannotListen(host, port, error) from error
    return sock


def listen(sock: socket.socket, host: str) -> str:
    """Start to listen; gives the server's URL.

    Raises CannotListen: two sockets may be bound to one port, but only one of them may listen.
    """
    port: int = sock.getsockname()[1]
    try:
        sock.listen(2048)
    except OSError as error:
        raise CannotListen(host, port, error) from error
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
