"""A port for a server that a test starts."""

import atexit
import socket
import sys


def free_port() -> int:
    """Return a port of this machine that no other program gets until this one ends.

    It refuses connections until a server listens on it, which may stop and start again.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port = int(reserved.getsockname()[1])
    if sys.platform == "linux":
        atexit.register(reserved.close)
    else:  # no server could bind it
        reserved.close()
    return port
