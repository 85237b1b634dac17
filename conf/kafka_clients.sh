#!/usr/bin/env bash
# Installs what `make test-kafka-clients` runs against the gateway, in .cache/kafka-clients: librdkafka's own test
# program, franz-go's, kafka-python's own tests, the clients of Kafka for Python beside the PySpark for which Spark's
# connector exists, that connector, and the jars of Kafka's broker, tools and Kafka Connect.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$PWD/.cache/kafka-clients
# The npm package has librdkafka's source in it.
package=@confluentinc/kafka-javascript@1.10.1
checksum=sha512-KVePUBn21EqCVP9mfxzEuM3SYJHHEF7X+iiC2e43QQgDSyEaksInmCGooT3w5q+cNAdkSCrK71j0ICfqoSqZLw==
franz_go=github.com/twmb/franz-go@v1.22.3
franz_go_checksum=h1:RHe35s34pKefMLyL+ZYJ6mQVtfFZz4zHDHVkTyACur0=
# It is the source distribution for Python that has the headers of RapidJSON. Without them librdkafka's test program
# leaves out three of its tests.
rapidjson="python-rapidjson==1.25 --hash=sha256:97c1de449552ec28ac5ae89350c2b53e4c5d21a9b4308d7a1630b1099e5db9fc"

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
    mkdir "$source/rapidjson"
    echo "$rapidjson" >"$source/rapidjson/requirements.txt"
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes \
        --requirement "$source/rapidjson/requirements.txt" --dest "$source/rapidjson"
    tar --extract --gzip --file "$source"/rapidjson/*.tar.gz --directory "$source/rapidjson" --strip-components=3 \
        --wildcards '*/rapidjson/include'
    (
        cd "$source"
        CPPFLAGS="-I$source/rapidjson" ./configure --disable-gssapi --disable-curl
        nice make -C src
        nice make -C src-cpp
        nice make -C tests test-runner
    ) >"$place/librdkafka.log" 2>&1 || { echo "The build failed; see $place/librdkafka.log." >&2; exit 1; }
    rm -rf "$place/librdkafka"
    mv "$source" "$place/librdkafka"
    trap - EXIT
}

build_franz_go() {
    local built=$place/franz-go.$$ module source
    echo "Building franz-go's tests (one minute, once)" >&2
    mkdir -p "$built"
    trap 'rm -rf "$place/franz-go.$$"' EXIT
    module=$(cd "$built" && go mod download -json "$franz_go")
    grep -qF "\"Sum\": \"$franz_go_checksum\"" <<<"$module" ||
        { echo "$franz_go is not the module that is pinned here." >&2; exit 1; }
    source=$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$module")
    nice go -C "$source" test -c -o "$built/kgo.test" ./pkg/kgo
    # test_franz_go.py looks up which tests there are.
    cp "$source"/pkg/kgo/*_test.go "$built"
    echo "$franz_go_checksum" >"$built/.checksum"
    rm -rf "$place/franz-go"
    mv "$built" "$place/franz-go"
    trap - EXIT
}

# The source distribution has the package's tests, without two modules that they import.
install_kafka_python_tests() {
    local unpacked=$place/kafka-python.$$
    echo "Fetching kafka-python's own tests" >&2
    mkdir -p "$unpacked"
    trap 'rm -rf "$place/kafka-python.$$"' EXIT
    printf '%s\n' "$kafka_python" >"$unpacked/requirements"
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary kafka-python \
        --require-hashes --requirement "$unpacked/requirements" --dest "$unpacked"
    tar --extract --gzip --file "$unpacked"/kafka_python-*.tar.gz --directory "$unpacked" --strip-components=1 \
        --wildcards '*/test'
    touch "$unpacked/test/__init__.py"
    cp tests/kafka_clients/kafka_python_service.py "$unpacked/test/service.py"
    rm -rf "$place/kafka-python"
    mv "$unpacked" "$place/kafka-python"
    trap - EXIT
}

mkdir -p "$place"
if [ ! -x "$place/librdkafka/tests/test-runner" ] || ! grep -qF "$checksum $rapidjson" "$place/librdkafka/.checksum"; then
    build_librdkafka
    echo "$checksum $rapidjson" >"$place/librdkafka/.checksum"
fi
if ! grep -sqF "$franz_go_checksum" "$place/franz-go/.checksum"; then
    build_franz_go
fi
# The tests are of the release that requirements.lock has.
kafka_python=$(sed -n '/^kafka-python==/,/[^\\]$/p' requirements.lock)
if [ tests/kafka_clients/kafka_python_service.py -nt "$place/kafka-python/test/service.py" ] ||
    [ "$(cat "$place/kafka-python/requirements" 2>/dev/null)" != "$kafka_python" ]; then
    install_kafka_python_tests
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
