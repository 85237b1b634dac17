#!/usr/bin/env bash
# Makes an environment with another release of PySpark: conf/pyspark_environment.sh 4.2 [DIRECTORY]
# All other packages have the versions of requirements.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
release=${1:?give a release of PySpark, such as 4.2}
directory=${2:-.cache/pyspark-$release}
uv=.venv/bin/uv
if [ ! -e "$directory/.installed" ] || [ requirements.lock -nt "$directory/.installed" ]; then
    echo "Installing PySpark $release into $directory (450 MB)" >&2
    "$uv" venv --quiet --clear --python .venv/bin/python "$directory"
    others=$(mktemp)
    trap 'rm -f "$others"' EXIT
    sed -e '/^pyspark==/,/^[^ ]/{/^pyspark==/d; /^ /d}' requirements.lock > "$others"
    "$uv" pip install --quiet --python "$directory/bin/python" --no-deps --require-hashes \
        --requirement "$others"
    "$uv" pip install --quiet --python "$directory/bin/python" "pyspark==$release.*"
    "$uv" pip install --quiet --python "$directory/bin/python" --no-deps --no-build-isolation --editable .
    touch "$directory/.installed"
fi
