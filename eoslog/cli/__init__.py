"""The ``eoslog`` command."""
