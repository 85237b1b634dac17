"""``eoslog ui``: start the web console."""

from __future__ import annotations

import os
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import urlsplit

import click

import eoslog
from eoslog.cli.options import Command, Invocation, parsed, pass_invocation
from eoslog.cli.rendering import print_json, print_line
from eoslog.storage.environment import Environment
from eoslog.ui.passwords import PasswordFile, Role, password_line

_PORT = click.IntRange(1, 65_535)
_NOT_INSTALLED = "The web console needs further packages. Install them, in a checkout of eoslog: pip install '.[ui]'"
_LOCAL_PROXIES = ("127.0.0.1", "::1")


def _named_store(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,39}", name) or not url:
        raise ValueError
    return name, url


def _new_user(text: str) -> tuple[str, Role]:
    name, _, role = text.rpartition(":")
    if not name:
        raise ValueError
    return name, Role(role)


def _public_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ValueError
    return text


_NAMED_STORE = parsed(_named_store, "NAME=URL, with a name of lower-case letters, digits, - and _")
_NEW_USER = parsed(_new_user, f"NAME:ROLE; the roles are {', '.join(Role)}")
_NETWORK = parsed(ip_network, "an address or a network, such as 10.0.0.7 or 10.0.0.0/24")
_PUBLIC_URL = parsed(_public_url, "a URL without a path, such as https://console.example.com")


@click.command(
    cls=Command,
    examples=[
        "",
        "--port 8765 --allow-admin",
        "--host 0.0.0.0 --port 8765 --password-file console-users",
        "--new-user alice:admin >> console-users",
        "eoslog ui live=s3://bucket/live test=s3://bucket/test",
    ],
)
@click.argument("stores", type=_NAMED_STORE, metavar="[NAME=URL]...", nargs=-1)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=_PORT, metavar="PORT", help="The port. By default a free one.")
@click.option(
    "--allow-admin", is_flag=True, help="Allow users with the role admin to abort transactions and reset group offsets."
)
@click.option(
    "--allowed-host", metavar="NAME", multiple=True, help="Another host name of the console. May be repeated."
)
@click.option(
    "--public-url", type=_PUBLIC_URL, metavar="URL", help="The URL by which browsers reach the console through a proxy."
)
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Users log in with a name and a password of this file.",
)
@click.option(
    "--new-user",
    type=_NEW_USER,
    metavar="NAME:ROLE",
    help="Only ask for a password, and print the line of this user for the password file.",
)
@click.option(
    "--user-header", metavar="HEADER", help="A proxy authenticates users, and names them in this header of requests."
)
@click.option(
    "--proxy",
    type=_NETWORK,
    metavar="ADDRESS",
    multiple=True,
    help="The address of the proxy, or its network. By default this machine. May be repeated.",
)
@click.option(
    "--admin", metavar="NAME", multiple=True, help="A user of the proxy with the role admin. May be repeated."
)
@pass_invocation
def ui(
    invocation: Invocation,
    stores: tuple[tuple[str, str], ...],
    host: str,
    port: int | None,
    allow_admin: bool,
    allowed_host: tuple[str, ...],
    public_url: str | None,
    password_file: Path | None,
    new_user: tuple[str, Role] | None,
    user_header: str | None,
    proxy: tuple[IPv4Network | IPv6Network, ...],
    admin: tuple[str, ...],
) -> None:
    """Serve a web console of the store on this machine.

    It prints a link with a token. The link works once, in one browser. With --password-file or --user-header it serves
    a team, and with NAME=URL several stores. The console only reads, unless --allow-admin is given. It runs until
    Ctrl-C or SIGTERM. It needs the packages of the extra `ui`.
    """
    if new_user is not None:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        print_line(password_line(*new_user, password, environment=Environment()))
        return
    if password_file is not None and user_header is not None:
        raise click.UsageError("Give --password-file or --user-header, not both.")
    if (proxy or admin) and user_header is None:
        raise click.UsageError("--proxy and --admin need --user-header.")
    if stores and invocation.url:
        raise click.UsageError("Give --store URL or NAME=URL, not both.")
    if len(dict(stores)) < len(stores):
        raise click.UsageError("Two stores have the same name.")
    try:
        from eoslog.ui.access import Access, LinkAccess, PasswordAccess, ProxyAccess
        from eoslog.ui.server import Address, serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "jinja2", "markupsafe", "uvicorn", "anyio", "h11"):
            raise
        raise click.ClickException(_NOT_INSTALLED) from None
    environment = Environment()
    access: Access
    if password_file is not None:
        access = PasswordAccess(environment, PasswordFile(password_file, environment))
    elif user_header is not None:
        access = ProxyAccess(
            environment, user_header, proxies=proxy or tuple(map(ip_network, _LOCAL_PROXIES)), admins=admin
        )
    else:
        access = LinkAccess(environment)
    opened: dict[str, eoslog.Store] = {name: invocation.store_at(url, None) for name, url in stores}
    if not stores:
        opened[""] = invocation.store()
    for store in opened.values():
        store.read(lambda state, slot: None)

    def ready(link: str) -> None:
        if invocation.as_json:
            print_json({"url": link})
        else:
            print_line(link)
        if isinstance(access, LinkAccess):
            opening = "Open this link in your browser. It works once."
        elif isinstance(access, PasswordAccess):
            opening = f"Users log in at {link}."
        else:
            opening = f"Users open {link} through the proxy."
        mode = "It may change the store." if allow_admin else "It only reads."
        click.echo(f"{opening} {mode} Ctrl-C ends the console.", err=True)
        if password_file is not None and not link.startswith(
            ("https:", "http://127.", "http://localhost", "http://[::1]")
        ):
            click.echo("Passwords cross the network as plain text. Use a proxy with TLS and --public-url.", err=True)

    address = Address(host, port or 0, allowed_host, public_url)
    try:
        serve(opened, access, address, allow_admin=allow_admin, ready=ready)
    except OSError as error:
        reason = str(error) if error.errno is None else os.strerror(error.errno)
        raise click.ClickException(f"The console cannot listen on {host}: {reason}. Choose another --port.") from None
