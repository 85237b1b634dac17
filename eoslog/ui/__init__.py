"""The web console of a store: ``eoslog ui``."""
