"""The command ``eoslog``: a store from the command line."""

from __future__ import annotations

import os
import sys

import click

from eoslog.cli.console import console
from eoslog.cli.context import Session
from eoslog.cli.offsets import offsets
from eoslog.cli.store_commands import checkpoint, coordinate, describe, vacuum
from eoslog.cli.topics import topics
from eoslog.cli.transactions import transactions
from eoslog.errors import EosLogError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--store", metavar="URL", help="The store: a local path or s3://bucket/prefix.  [env: EOSLOG_STORE]")
@click.option("--config", metavar="FILE", help="A settings file, see conf/eoslog.toml.  [env: EOSLOG_CONFIG]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.version_option(package_name="eoslog", prog_name="eoslog")
@click.pass_context
def cli(context: click.Context, store: str | None, config: str | None, as_json: bool) -> None:
    """Look at an eoslog store, and change it.

    \b
    Examples:
      eoslog --store my-store topics create payments --partitions 3
      echo hello | eoslog --store my-store console produce payments
      eoslog --store my-store console consume payments --from-beginning
      eoslog --store s3://bucket/prefix --json transactions list
    """
    context.obj = Session(store, config, as_json)


cli.add_command(topics)
cli.add_command(transactions)
cli.add_command(offsets)
cli.add_command(console)
cli.add_command(describe)
cli.add_command(vacuum)
cli.add_command(checkpoint)
cli.add_command(coordinate)


def main() -> None:
    """Run the command; an error of eoslog is one line, without a traceback."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except EosLogError as error:
        click.secho(str(error), fg="red", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone; nothing may be written when Python closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
