"""One process's connection to a store."""
