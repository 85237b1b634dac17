"""``eoslog ui``: start the web console."""

from __future__ import annotations

import os

import click

from eoslog.cli.options import Command, Invocation, pass_invocation
from eoslog.cli.rendering import print_json, print_line

_PORT = click.IntRange(1, 65_535)
_NOT_INSTALLED = "The web console needs further packages. Install them, in a checkout of eoslog: pip install '.[ui]'"


@click.command(cls=Command, examples=["", "--port 8765 --allow-admin"])
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=_PORT, metavar="PORT", help="The port. By default a free one.")
@click.option("--allow-admin", is_flag=True, help="Allow aborts of transactions and resets of group offsets.")
@click.option(
    "--allowed-host", metavar="NAME", multiple=True, help="Another host name of the console. May be repeated."
)
@pass_invocation
def ui(invocation: Invocation, host: str, port: int | None, allow_admin: bool, allowed_host: tuple[str, ...]) -> None:
    """Serve a web console of the store on this machine.

    It prints a link with a token. The link works once, in one browser. The console only reads, unless --allow-admin is
    given. It runs until Ctrl-C or SIGTERM. It needs the packages of the extra `ui`.
    """
    try:
        from eoslog.ui.server import serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "jinja2", "markupsafe", "uvicorn", "anyio", "h11"):
            raise
        raise click.ClickException(_NOT_INSTALLED) from None
    store = invocation.store()
    store.read(lambda state, slot: None)

    def ready(link: str) -> None:
        if invocation.as_json:
            print_json({"url": link})
        else:
            print_line(link)
        mode = "It may change the store." if allow_admin else "It only reads."
        click.echo(f"Open this link in your browser. It works once. {mode} Ctrl-C ends the console.", err=True)

    try:
        serve(store, host=host, port=port or 0, allow_admin=allow_admin, allowed_hosts=allowed_host, ready=ready)
    except OSError as error:
        reason = str(error) if error.errno is None else os.strerror(error.errno)
        raise click.ClickException(f"The console cannot listen on {host}: {reason}. Choose another --port.") from None
