#!/usr/bin/env bash
# A server with the interface of Google Cloud Storage on this machine, for tests and the demo: fake-gcs-server.
#
#   gcs_server.sh find            print the path of the server's binary, and fail if there is none
#   gcs_server.sh install         the same, but build it with Go if there is none
#   gcs_server.sh start [DIR]     start it on a free port with its data below DIR, and make the bucket "eoslog"
#   gcs_server.sh stop [DIR]      stop it; its data stay
#   gcs_server.sh run [DIR]       start it, print "started" or the new directory that is its own, and stop it once
#                                 standard input ends, as it does when the caller dies
#   gcs_server.sh show [DIR]      say how to use it
#   gcs_server.sh with COMMAND…   run a command that finds the server of .cache/gcs, and stop it if it did not run before
#
# DIR is .cache/gcs by default, or below it (see directory_of). DIR/environment sets STORAGE_EMULATOR_HOST, by which
# eoslog and Google's own clients find the server. It takes every request, without credentials. The binary is built into
# .cache/gcs/bin.
set -euo pipefail

module=github.com/fsouza/fake-gcs-server
version=v1.56.1
checksum=h1:K03sAvbLvDz4hAynpCCUqnNRp+ik9JFSvHbkD/wTPOU=
bucket=eoslog
repository=$(cd "$(dirname "$0")/.." && pwd)
action=${1:-show}

# shellcheck source=server_functions.sh
. "$repository/conf/server_functions.sh"

directory=$(directory_of gcs "${2:-}")

binary() {
    local built=$repository/.cache/gcs/bin/$version/fake-gcs-server
    if [ ! -x "$built" ]; then
        [ "$action" != find ] || fail "There is no fake-gcs-server on this machine: \`conf/gcs_server.sh install\` builds it with Go 1.25 or later."
        install_with_go "server for gs://" "$module" "" "$built"
    fi
    echo "$built"
}

start() {
    if is_running gcs; then
        return
    fi
    local server port
    server=$(binary)
    mkdir -p "$directory/data/$bucket"
    chmod 700 "$directory"
    # The server tells a bucket in the path from one in the name of the host by the public host.
    launch gcs "$server" -scheme http -host 127.0.0.1 -port %PORT% -public-host 127.0.0.1:%PORT% \
        -backend filesystem -filesystem-root "$directory/data" -log-level warn
    echo "export STORAGE_EMULATOR_HOST=http://127.0.0.1:$port" >"$directory/environment"
}

stop() {
    end gcs
    rm -f "$directory/environment"
}

show() {
    is_running gcs || fail "No server for gs:// runs with its data in $directory."
    cat <<END
A server for gs:// runs at $(sed -n 's/.*STORAGE_EMULATOR_HOST=//p' "$directory/environment"), with the bucket "$bucket". To use it:
  . $directory/environment
  eoslog --store gs://$bucket/quickstart topics create payments
  eoslog --store gs://$bucket/quickstart describe
END
}

case $action in
    find | install) binary ;;
    start)
        start
        show
        ;;
    stop) stop ;;
    run) run_until_input_ends "${2:-}" ;;
    show) show ;;
    with)
        shift
        run_with gcs "$@"
        ;;
    *) fail "$action is no action of $0; valid are find, install, start, stop, run, show and with." ;;
esac
