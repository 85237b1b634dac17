"""Bytes on disk: data files, segment indexes, schemas, statistics, checkpoints."""
