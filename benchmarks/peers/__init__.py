"""eoslog beside Parquet, Delta, Iceberg and Kafka: the same work in one run, and the page that it makes.

``make bench-peers`` installs the peers, runs ``python -m benchmarks.peers`` and so writes ``docs/performance.md``.
"""
