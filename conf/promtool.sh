#!/usr/bin/env bash
# promtool, which tests the alert rules of conf/deploy.
#
#   promtool.sh find       print the path of its binary, and fail if there is none
#   promtool.sh install    the same, but build it with Go if there is none
#
# The binary is the one that EOSLOG_PROMTOOL names, or `promtool` on the PATH, or is built into .cache/promtool.
set -euo pipefail

module=github.com/prometheus/prometheus
version=v0.311.3
checksum=h1:3IrVxQv6v5i/ZCGi6OrYeBhtCwaPTn6Z3DYruXoYm3M=
repository=$(cd "$(dirname "$0")/.." && pwd)
built=$repository/.cache/promtool/$version/promtool
action=${1:-find}

fail() {
    echo "$1" >&2
    exit 1
}

build() {
    local found source new
    command -v go >/dev/null || fail "There is no promtool: install Prometheus, or Go 1.25 or later to build it."
    echo "Building promtool $version with Go (one to five minutes, once)" >&2
    # `go install` refuses a module that excludes versions, as this one does. So it is built from its own source.
    found=$(go mod download -json "$module@$version") || fail "$module $version could not be downloaded: $found"
    # Go checks the module against its public log of checksums; this check holds where that is switched off.
    grep -qF "\"$checksum\"" <<<"$found" || fail "$module $version is not the one that is pinned here."
    source=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$found")
    mkdir -p "$(dirname "$built")"
    new=$built.$$
    # Rules need no service discovery, which is most of the code.
    GOWORK=off GOFLAGS=-mod=readonly CGO_ENABLED=0 go -C "$source" build -tags remove_all_sd -o "$new" ./cmd/promtool >&2 ||
        fail "promtool $version could not be built; see above."
    mv "$new" "$built"
}

case $action in
    find | install) ;;
    *) fail "$action is no action of $0; valid are find and install." ;;
esac
if [ -n "${EOSLOG_PROMTOOL:-}" ]; then
    [ -x "$EOSLOG_PROMTOOL" ] || fail "EOSLOG_PROMTOOL names $EOSLOG_PROMTOOL, which is no program."
    echo "$EOSLOG_PROMTOOL"
elif command -v promtool; then
    :
else
    if [ ! -x "$built" ]; then
        [ "$action" = install ] || fail "There is no promtool on this machine: \`conf/promtool.sh install\` builds it with Go 1.25 or later."
        build
    fi
    echo "$built"
fi
