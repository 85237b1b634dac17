"""The options of ``format("eoslog")``."""
