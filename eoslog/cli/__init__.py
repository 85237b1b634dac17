"""The `eoslog` command."""
