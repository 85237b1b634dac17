#!/usr/bin/env bash
# Installs the engines that read published topics as Iceberg tables, in an environment of their own: PyIceberg, Polars,
# DuckDB with its extensions for Iceberg and S3, and the PySpark for which Iceberg's own runtime is made.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=.cache/iceberg-tools
uv=.venv/bin/uv
if [ ! -e "$tools/.installed" ] || [ conf/iceberg_tools.sh -nt "$tools/.installed" ]; then
    echo "Installing the engines into $tools (PySpark alone is 450 MB)"
    "$uv" venv --quiet --clear --python .venv/bin/python "$tools/venv"
    "$uv" pip install --quiet --python "$tools/venv/bin/python" --editable ".[iceberg]" "pyiceberg[pyarrow]==0.12.0" \
        "polars==2.1.0" "duckdb==1.5.5" "duckdb-extension-iceberg==1.5.5" "duckdb-extension-avro==1.5.5" \
        "duckdb-extension-httpfs==1.5.5" "deltalake==1.6.6" "pytz" "pyspark==4.1.*" "pytest>=8" "pytest-timeout" "hypothesis"
    mvn --quiet --batch-mode --file tests/iceberg_tools/pom.xml dependency:copy-dependencies \
        "-DoutputDirectory=$PWD/$tools/jars"
    touch "$tools/.installed"
fi
