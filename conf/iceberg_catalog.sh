#!/usr/bin/env bash
# A REST catalog of Iceberg tables on this machine, for tests: the server of the Iceberg project, on SQLite.
#
#   iceberg_catalog.sh find            print the directory of the server's libraries, and fail if there is none
#   iceberg_catalog.sh install         the same, but fetch them with Maven if there are none
#   iceberg_catalog.sh start [DIR]     start it on a free port with its data below DIR
#   iceberg_catalog.sh stop [DIR]      stop it; its data stay
#   iceberg_catalog.sh run [DIR]       start it, print "started" or the new directory that is its own, and stop it once
#                                      standard input ends, as it does when the caller dies
#   iceberg_catalog.sh show [DIR]      say how to use it
#   iceberg_catalog.sh with COMMAND…   run a command that finds the server of .cache/iceberg-catalog, and stop it if it
#                                      did not run before
#
# DIR is .cache/iceberg-catalog by default, or below it (see directory_of). DIR/environment sets
# EOSLOG_ICEBERG__CATALOG_URI. The server takes every request, without credentials, and listens on all addresses of this
# machine.
set -euo pipefail

repository=$(cd "$(dirname "$0")/.." && pwd)
action=${1:-show}

# shellcheck source=server_functions.sh
. "$repository/conf/server_functions.sh"

directory=$(directory_of iceberg-catalog "${2:-}")

libraries() {
    local pom=$repository/tests/iceberg_catalog/pom.xml place
    place=$repository/.cache/iceberg-catalog/jars-$(cksum <"$pom" | cut -d ' ' -f 1)
    if [ ! -d "$place" ]; then
        [ "$action" != find ] || fail "There is no REST catalog on this machine: \`conf/iceberg_catalog.sh install\` fetches it with Maven."
        command -v java >/dev/null && command -v mvn >/dev/null || fail "The REST catalog needs Java 17 and Maven."
        mvn --quiet --batch-mode --file "$pom" dependency:copy-dependencies "-DoutputDirectory=$place.$$" >&2 ||
            fail "The libraries of the REST catalog could not be fetched; see above."
        mv "$place.$$" "$place"
    fi
    echo "$place"
}

start() {
    if is_running catalog; then
        return
    fi
    local place port
    place=$(libraries)
    mkdir -p "$directory/data"
    chmod 700 "$directory"
    launch catalog env CATALOG_REST_PORT=%PORT% "CATALOG_URI=jdbc:sqlite:$directory/data/catalog.db" \
        "CATALOG_WAREHOUSE=$directory/data/warehouse" \
        java "-Duser.home=$directory/data" -cp "$place/*" org.apache.iceberg.rest.RESTCatalogServer
    echo "export EOSLOG_ICEBERG__CATALOG_URI=http://127.0.0.1:$port" >"$directory/environment"
}

stop() {
    end catalog
    rm -f "$directory/environment"
}

show() {
    is_running catalog || fail "No REST catalog runs with its data in $directory."
    cat <<END
A REST catalog runs at $(sed -n 's/.*CATALOG_URI=//p' "$directory/environment"). To publish Iceberg tables to it:
  . $directory/environment
END
}

case $action in
    find | install) libraries ;;
    start)
        start
        show
        ;;
    stop) stop ;;
    run) run_until_input_ends "${2:-}" ;;
    show) show ;;
    with)
        shift
        run_with catalog "$@"
        ;;
    *) fail "$action is no action of $0; valid are find, install, start, stop, run, show and with." ;;
esac
