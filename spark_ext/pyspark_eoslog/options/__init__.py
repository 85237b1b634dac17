"""The options of ``format("eoslog")``."""

from pyspark_eoslog.options.source_options import NAMES, STORE_PREFIX, Options, StoreLocation

__all__ = ["NAMES", "STORE_PREFIX", "Options", "StoreLocation"]
