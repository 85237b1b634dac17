"""The options ``--metrics-port`` and ``--metrics-address`` of commands that run until a signal ends them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def metrics_options(command: F) -> F:
    """Add the options to a command."""
    port = click.option(
        "--metrics-port",
        type=click.IntRange(0, 65_535),
        metavar="PORT",
        help="Serve /metrics, /livez and /readyz over HTTP.",
    )
    address = click.option(
        "--metrics-address",
        metavar="ADDRESS",
        default="127.0.0.1",
        show_default=True,
        help="The address of --metrics-port.",
    )
    return port(address(command))


def prometheus_metrics() -> Any:
    """Return the module of metrics for Prometheus. Its library is optional."""
    try:
        import eoslog.prometheus
    except ModuleNotFoundError:
        raise click.UsageError(
            "Metrics for Prometheus need the package prometheus-client. Install it: pip install prometheus-client"
        ) from None
    return eoslog.prometheus


def serve_metrics(address: str, port: int, serve: Callable[[], tuple[int, T]]) -> T:
    """Begin to serve metrics, and say where.

    Args:
        serve: begins, and returns the port and the answer of this function.
    """
    with usable_port(address, port):
        port, found = serve()
    click.echo(f"metrics: http://{address}:{port}/metrics", err=True)
    return found


@contextmanager
def usable_port(address: str, port: int) -> Iterator[None]:
    """Refuse an address and a port at which the block cannot listen."""
    try:
        yield
    except OSError as error:
        raise click.UsageError(f"{address}:{port} cannot be used: {error}. Choose another.") from None
