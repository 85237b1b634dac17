"""Addresses of hosts."""

from __future__ import annotations

import socket
from ipaddress import ip_address


def is_unspecified(host: str) -> bool:
    """Return True if a host stands for all addresses of this machine. Other processes cannot connect to it."""
    try:
        # The system reads 0 as 0.0.0.0.
        return ip_address(host if ":" in host else socket.inet_aton(host or "0")).is_unspecified
    except (OSError, ValueError):
        # It is a name.
        return False
