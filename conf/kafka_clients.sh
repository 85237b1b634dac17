#!/usr/bin/env bash
# Installs what `make test-kafka-clients` runs against the gateway, in .cache/kafka-clients: librdkafka's own test
# program, the clients of Kafka for Python beside the PySpark for which Spark's connector exists, that connector, and
# the jars of Kafka's broker and tools.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$PWD/.cache/kafka-clients
# The npm package has librdkafka's source in it.
package=@confluentinc/kafka-javascript@1.10.1
checksum=sha512-KVePUBn21EqCVP9mfxzEuM3SYJHHEF7X+iiC2e43QQgDSyEaksInmCGooT3w5q+cNAdkSCrK71j0ICfqoSqZLw==

# newer FILE…: one of these files was changed after the last installation.
newer() {
    local file
    for file in "$@"; do
        [ "$file" -nt "$place/.installed" ] && return
    done
    return 1
}

build_librdkafka() {
    local source=$place/librdkafka.$$ archive
    echo "Building librdkafka's tests with one core (five minutes, once)" >&2
    mkdir -p "$source"
    trap 'rm -rf "$place/librdkafka.$$"' EXIT
    archive=$(cd "$source" && npm pack --silent "$package")
    [ "sha512-$(openssl dgst -sha512 -binary "$source/$archive" | base64 -w 0)" = "$checksum" ] ||
        { echo "$package is not the package that is pinned here." >&2; exit 1; }
    tar --extract --gzip --file "$source/$archive" --directory "$source" --strip-components=3 package/deps/librdkafka
    # npm leaves out files named *.log, and so the module of configure with this name. It defines nothing that is used.
    : >"$source/mklove/modules/configure.log"
    (
        cd "$source"
        ./configure --disable-gssapi --disable-curl
        nice make -C src
        nice make -C src-cpp
        nice make -C tests test-runner
    ) >"$place/librdkafka.log" 2>&1 || { echo "The build failed; see $place/librdkafka.log." >&2; exit 1; }
    rm -rf "$place/librdkafka"
    mv "$source" "$place/librdkafka"
    trap - EXIT
}

mkdir -p "$place"
if [ ! -x "$place/librdkafka/tests/test-runner" ] || ! grep -qF "$checksum" "$place/librdkafka/.checksum"; then
    build_librdkafka
    echo "$checksum" >"$place/librdkafka/.checksum"
fi
conf/pyspark_environment.sh 4.1 "$place/venv"
if [ ! -e "$place/.installed" ] || newer conf/kafka_clients.sh tests/kafka_clients/*.pom.xml "$place/venv/.installed"; then
    echo "Installing clients of Kafka into $place (200 MB of jars)" >&2
    .venv/bin/uv pip install --quiet --python "$place/venv/bin/python" --constraints requirements.lock \
        "confluent-kafka==2.16.1" "cramjam==2.14.0" "lz4==4.4.5" "python-snappy==0.7.3" "zstandard"
    for part in kafka spark; do
        rm -rf "${place:?}/$part"
        mvn --quiet --batch-mode --file "tests/kafka_clients/$part.pom.xml" dependency:copy-dependencies \
            "-DoutputDirectory=$place/$part"
    done
    touch "$place/.installed"
fi
