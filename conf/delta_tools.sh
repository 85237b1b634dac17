#!/usr/bin/env bash
# Installs the engines that read published topics as Delta tables, in an environment of their own: delta-rs, Polars,
# DuckDB with its extensions for Delta and S3, and the PySpark for which Delta's own connector is made.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=.cache/delta-tools
uv=.venv/bin/uv
if [ ! -e "$tools/.installed" ] || [ conf/delta_tools.sh -nt "$tools/.installed" ]; then
    echo "Installing the engines into $tools (PySpark alone is 450 MB)"
    "$uv" venv --quiet --clear --python .venv/bin/python "$tools/venv"
    "$uv" pip install --quiet --python "$tools/venv/bin/python" --editable . "deltalake==1.6.6" "polars==2.1.0" \
        "duckdb==1.5.5" "duckdb-extension-delta==1.5.5" "duckdb-extension-httpfs==1.5.5" "pytz" \
        "pyspark==4.2.*" "pytest>=8" "pytest-timeout" "hypothesis"
    mvn --quiet --batch-mode --file tests/delta_tools/pom.xml dependency:copy-dependencies \
        "-DoutputDirectory=$PWD/$tools/jars"
    touch "$tools/.installed"
fi
