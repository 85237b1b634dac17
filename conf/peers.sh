#!/usr/bin/env bash
# Installs what `make bench-peers` measures beside eoslog, in .cache/peers: one PySpark for which Delta's, Iceberg's and
# Kafka's connectors exist, delta-rs, PyIceberg, librdkafka's client for Python, and the jars of a Kafka broker.
set -euo pipefail
cd "$(dirname "$0")/.."
peers=.cache/peers
conf/pyspark_environment.sh 4.1 "$peers/venv"
installed=$peers/.installed
if [ ! -e "$installed" ] || [ conf/peers.sh -nt "$installed" ] || [ benchmarks/peers/pom.xml -nt "$installed" ] ||
    [ "$peers/venv/.installed" -nt "$installed" ]; then
    echo "Installing the peers into $peers (250 MB of jars)"
    .venv/bin/uv pip install --quiet --python "$peers/venv/bin/python" --constraints requirements.lock \
        "pyiceberg[pyarrow,s3fs,sql-sqlite]==0.12.0" "confluent-kafka==2.16.1"
    mvn --quiet --batch-mode --file benchmarks/peers/pom.xml dependency:copy-dependencies \
        "-DoutputDirectory=$PWD/$peers/spark"
    mvn --quiet --batch-mode --file tests/kafka_tools/pom.xml dependency:copy-dependencies \
        "-DoutputDirectory=$PWD/$peers/kafka"
    touch "$installed"
fi
