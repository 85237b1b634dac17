"""The ``eoslog`` command: topics, transactions, offsets, a console, and what keeps a store small."""
