"""``eoslog gateway``: serve Kafka's clients."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

import eoslog
from eoslog.cli.metrics_options import metrics_options, prometheus_metrics, serve_metrics, usable_port
from eoslog.cli.options import COUNT, NATURAL, Command, Invocation, parsed, pass_invocation
from eoslog.storage.environment import Environment
from eoslog.storage.host_addresses import is_unspecified

if TYPE_CHECKING:
    from eoslog.gateway.addresses import Address
    from eoslog.gateway.gateway_config import GatewayConfig
    from eoslog.gateway.security import Security
    from eoslog.gateway.server import Gateway

_FILES_OF_STORE = 256
_LONGEST_RACK = 255
_PACKAGES = ("kio", "scramp", "jwt", "cryptography")
_NOT_INSTALLED = "The gateway needs further packages. Install them, in a checkout of eoslog: pip install '.[gateway]'"


def _address(text: str) -> tuple[str, int]:
    from eoslog.gateway.addresses import parsed_address

    address = parsed_address(text)
    return address.host, address.port


def _rack(text: str) -> str:
    if not 1 <= len(text) <= _LONGEST_RACK:
        raise ValueError(text)
    return text


_RACK = parsed(_rack, f"a name of 1 to {_LONGEST_RACK} characters")
_FILE = click.Path(dir_okay=False, path_type=Path)
_ADDRESS = parsed(_address, "HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092")


@click.command(
    cls=Command,
    examples=[
        "",
        "--listen 127.0.0.1:9092 --auto-create-topics",
        "--users users --new-user alice",
        "--listen 0.0.0.0:9092 --advertise kafka.example.com:9092 --tls-certificate tls.crt --tls-key tls.key "
        "--users users",
        "--check",
    ],
)
@click.option(
    "--listen",
    type=_ADDRESS,
    metavar="HOST:PORT",
    default="127.0.0.1:9092",
    show_default=True,
    help="The address for clients. Port 0 takes a free one. Other machines can connect only with TLS and SASL.",
)
@click.option(
    "--advertise",
    type=_ADDRESS,
    metavar="HOST:PORT",
    help="The address that clients connect to, if it is not that of --listen.",
)
@click.option(
    "--linger-ms",
    type=NATURAL,
    metavar="MS",
    help="How long a batch waits for others while earlier ones are appended, at most 10000. Default: 5, on clouds 50.",
)
@click.option("--auto-create-topics", is_flag=True, help="Create a topic when a client asks for one that is missing.")
@click.option(
    "--default-partitions",
    type=COUNT,
    metavar="NUMBER",
    default=1,
    show_default=True,
    help="The partitions of a new topic, if its creator gives no number.",
)
@click.option(
    "--group-initial-rebalance-delay-ms",
    type=NATURAL,
    metavar="MS",
    default=3_000,
    show_default=True,
    help="How long an empty group waits for more members before it begins.",
)
@click.option(
    "--tls-certificate",
    type=_FILE,
    metavar="FILE",
    help="The certificate for TLS, and those of its issuers (PEM). A new one is used without a restart.",
)
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The private key of the certificate (PEM).")
@click.option("--users", type=_FILE, metavar="FILE", help="Clients authenticate by SCRAM as users of this file.")
@click.option(
    "--new-user",
    metavar="NAME",
    help="Only ask for a password, or read it from standard input, and put this user into the file of --users.",
)
@click.option(
    "--oauth-jwks-url",
    metavar="URL",
    help="Clients authenticate by OAUTHBEARER, with tokens that are signed by keys at this URL.",
)
@click.option("--oauth-issuer", metavar="ISSUER", help="The issuer of the tokens (iss).")
@click.option("--oauth-audience", metavar="AUDIENCE", help="The audience that tokens must name (aud).")
@click.option("--rack", type=_RACK, metavar="RACK", help="The gateway's rack, for consumers with a client.rack.")
@metrics_options
@click.option(
    "--check",
    is_flag=True,
    help="Only check the store and the address, and show the settings and brokers that clients get.",
)
@pass_invocation
def gateway(
    invocation: Invocation,
    listen: tuple[str, int],
    advertise: tuple[str, int] | None,
    linger_ms: int | None,
    auto_create_topics: bool,
    default_partitions: int,
    group_initial_rebalance_delay_ms: int,
    tls_certificate: Path | None,
    tls_key: Path | None,
    users: Path | None,
    new_user: str | None,
    oauth_jwks_url: str | None,
    oauth_issuer: str | None,
    oauth_audience: str | None,
    rack: str | None,
    metrics_port: int | None,
    metrics_address: str,
    check: bool,
) -> None:
    """Serve Kafka's clients in front of the store.

    Unmodified clients of Kafka write to topics of Kafka records, with and without transactions, and read them, alone or
    in groups. The gateway keeps no state that it could lose: a client repeats its requests to the next one. It runs
    until SIGTERM or Ctrl-C. It needs the packages of the extra `gateway`.
    """
    try:
        from eoslog.gateway.addresses import Address
        from eoslog.gateway.gateway_config import (
            DISK_LINGER_MS,
            LONGEST_LINGER_MS,
            OBJECT_STORE_LINGER_MS,
            GatewayConfig,
        )
        from eoslog.gateway.scram import write_user
        from eoslog.gateway.security import security
        from eoslog.gateway.server import Gateway, listening_socket
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise click.ClickException(_NOT_INSTALLED) from None
    if new_user is not None:
        if users is None:
            raise click.UsageError("--new-user needs --users FILE.")
        write_user(users, new_user, _password(), Environment())
        return
    if advertise is not None and advertise[1] == 0:
        raise click.BadParameter(
            "Clients cannot connect to port 0. Give the port that they use.", param_hint="--advertise"
        )
    secured = security(
        Environment(),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        users=users,
        oauth_jwks_url=oauth_jwks_url,
        oauth_issuer=oauth_issuer,
        oauth_audience=oauth_audience,
    )
    if linger_ms is not None and linger_ms > LONGEST_LINGER_MS:
        raise click.BadParameter(
            f"{linger_ms} ms are too long: requests of clients would time out. Give at most {LONGEST_LINGER_MS}.",
            param_hint="--linger-ms",
        )
    if metrics_port is not None:
        # Without the package the gateway does not start.
        prometheus_metrics()
    store = invocation.store()
    store.read(lambda state, slot: None)
    if linger_ms is None:
        linger_ms = OBJECT_STORE_LINGER_MS if store.object_store.is_remote else DISK_LINGER_MS
    config = GatewayConfig(
        linger_ms=linger_ms,
        auto_create_topics=auto_create_topics,
        default_partitions=default_partitions,
        group_initial_rebalance_delay_ms=group_initial_rebalance_delay_ms,
        rack=rack,
    )
    try:
        listening = listening_socket(Address(*listen), secured)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise click.ClickException(
            f"The gateway cannot listen on {Address(*listen)}: {reason}. Choose another --listen."
        ) from None
    with listening:
        own = Address(listen[0], listening.getsockname()[1])
        advertised = Address(*advertise) if advertise else own
        if is_unspecified(advertised.host):
            raise click.BadParameter(
                f"Clients cannot connect to {advertised.host}. Give the host that they use.", param_hint="--advertise"
            )
        metrics = None if metrics_port is None else (metrics_address, metrics_port)
        if check:
            if metrics is not None:
                with usable_port(*metrics):
                    socket.create_server(metrics).close()
            _print_check(invocation, store, advertised=advertised, config=config, secured=secured)
            return
        sys.meta_path.insert(0, _WithoutPandas())
        _allow_files(config.max_connections)
        server = Gateway(store, config, advertised, listens_elsewhere=advertised != own, security=secured)
        asyncio.run(_served(server, listening, str(advertised), store, metrics=metrics))


_CLIENTS = {
    "Java, Kafka 4.3": "none; group.protocol stays classic",
    "librdkafka, confluent-kafka": "consumers need a group.id; group.protocol stays classic",
    "kafka-python, aiokafka, franz-go": "none",
    "Kafka Connect 4.3": "exactly.once.source.support=enabled, and consumer.isolation.level=read_committed for sinks",
    "Spark's Kafka connector": (
        "kafka.isolation.level=read_committed; it assigns partitions, and its offsets are in its checkpoint"
    ),
}
"""The settings of clients beside ``bootstrap.servers``."""


def _password() -> str:
    """Return a password from the terminal, or the first line of standard input."""
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")


def _print_check(
    invocation: Invocation, store: eoslog.Store, *, advertised: Address, config: GatewayConfig, secured: Security
) -> None:
    """Print what the gateway offers to clients, and the settings that they need."""
    from eoslog.gateway.live_gateways import LiveGateways
    from eoslog.gateway.protocol import VERSIONS

    gateways = LiveGateways(store, advertised, rack=config.rack, protocol=secured.protocol)
    asyncio.run(gateways.refresh())
    gateways.close()
    topics = store.read(lambda state, slot: sorted(state.topics.values(), key=lambda topic: topic.topic), refresh=False)
    invocation.print_facts(
        {
            "Url": store.url,
            "ClusterId": store.describe().store_id,
            "bootstrap.servers": str(advertised),
            "security.protocol": secured.protocol,
            "sasl.mechanism": " or ".join(secured.mechanisms) or None,
            "enable.idempotence": "true or false",
            "transactional.id": "any",
            "isolation.level": "read_committed leaves out rows of open and aborted transactions",
            "group.id": "any",
            "LingerMs": config.linger_ms,
            "AutoCreateTopics": config.auto_create_topics,
            "DefaultPartitions": config.default_partitions,
            "GroupInitialRebalanceDelayMs": config.group_initial_rebalance_delay_ms,
        },
        brokers=[
            {"NodeId": each.node_id, "Address": str(each.address), "Rack": each.rack} for each in gateways.brokers
        ],
        clients=[{"Client": client, "Settings": settings} for client, settings in _CLIENTS.items()],
        # The versions would be a screen of their own.
        apis=[
            {"Api": key.name.lower(), "MinVersion": versions.start, "MaxVersion": versions.stop - 1}
            for key, versions in VERSIONS.items()
            if invocation.as_json or invocation.wide
        ],
        # Only topics of Kafka's records are served.
        topics=[
            {"Topic": each.topic, "Partitions": each.partitions, "IsServed": each.topic_schema.kind == "records"}
            for each in topics
        ],
    )


def _allow_files(connections: int) -> None:
    """Raise the limit of open files, so that these connections fit beside the files of the store."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _FILES_OF_STORE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


class _WithoutPandas(MetaPathFinder):
    """Refuses to find pandas.

    Arrow imports pandas with its first array if it finds it. A gateway needs no pandas, and the import takes up to a
    second, for which the first client would wait. None in ``sys.modules`` would not do: there Arrow takes the name for
    the package.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a gateway does not use pandas", name=fullname)


async def _served(
    gateway: Gateway, listening: socket.socket, address: str, store: eoslog.Store, *, metrics: tuple[str, int] | None
) -> None:
    if metrics is not None:
        from eoslog.gateway.gateway_health import GatewayHealth

        serve = partial(prometheus_metrics().serve_gateway, store, *metrics, gateway, GatewayHealth(store, gateway))
        serve_metrics(*metrics, lambda: (serve(), None))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def ready() -> None:
        click.echo(f"serving {store.url} to Kafka's clients: {address}; SIGTERM or Ctrl-C ends it", err=True)

    await gateway.run(listening, ready, stop)
