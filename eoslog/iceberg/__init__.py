"""Iceberg tables: table metadata, manifests, and the versions of a table; schemas and bounds."""
