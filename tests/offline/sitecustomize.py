"""No way out of this machine. Python imports this by itself where the folder is on the path, so in all children too."""

import errno
import socket
import sys
from functools import cache

refused = []  # places that something in this process wanted to reach
_closed = False


@cache
def here(host):
    """Whether an address is one of this machine's own."""
    if host in (None, "", b"", "localhost", "localhost.localdomain", "::", "::1", "0.0.0.0", socket.gethostname()):
        return True
    host = host.decode() if isinstance(host, bytes) else str(host)
    if host.startswith("127."):
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind((host.partition("%")[0], 0))
    except (OSError, UnicodeError):
        return False
    return True


def watch(event, args):
    if event in ("socket.connect", "socket.sendto"):
        made, address = args
        if not isinstance(address, tuple) or here(address[0]):  # not a tuple: a Unix socket
            return
        quiet = made.type & socket.SOCK_DGRAM and event == "socket.connect"  # sends nothing: asks for the own address
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        address, quiet = (args[0],), False
        try:
            numeric = bool(args[0]) and (":" in args[0] or args[0].replace(".", "").isdigit())
        except TypeError:
            numeric = False
        if numeric or here(args[0]):
            return
    else:
        return
    if not quiet:
        refused.append(address)
    raise OSError(errno.ENETUNREACH, f"tests have no network: {address}")


def close():
    global _closed
    if not _closed:
        _closed = True
        sys.addaudithook(watch)


if __name__ == "sitecustomize":
    sys.modules["tests.offline.sitecustomize"] = sys.modules[__name__]  # a worker of pytest has it already: one list
    close()
