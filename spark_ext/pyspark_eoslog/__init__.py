"""The Spark data source `eoslog`: batch and stream, reader and writer, native scan."""
