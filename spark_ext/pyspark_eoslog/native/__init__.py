"""Reads by Spark's own Parquet reader."""
