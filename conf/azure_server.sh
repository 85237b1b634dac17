#!/usr/bin/env bash
# A server with the interface of Azure Blob Storage on this machine, for tests and the demo: Azurite.
#
#   azure_server.sh find            print the path of the server's program, and fail if there is none
#   azure_server.sh install         the same, but install it with npm if there is none
#   azure_server.sh start [DIR]     start it on a free port with its data below DIR, and make the container "eoslog"
#   azure_server.sh stop [DIR]      stop it; its data stay
#   azure_server.sh run [DIR]       start it, print "started" or the new directory that is its own, and stop it once
#                                   standard input ends, as it does when the caller dies
#   azure_server.sh show [DIR]      say how to use it
#   azure_server.sh with COMMAND…   run a command that finds the server of .cache/azure, and stop it if it did not run
#                                   before
#
# DIR is .cache/azure by default, or below it (see directory_of). DIR/environment (mode 600) sets
# AZURE_STORAGE_CONNECTION_STRING, by which eoslog and Azure's own clients find the server; the account's random key
# stands nowhere else. The program is installed into .cache/azure/npm.
set -euo pipefail

version=3.37.0
checksum=sha512-dl2AXMkXtVlX9s3U3ttIQFFlKwe64k/ugSIVNT4V3qX488Ncw988rIHAs6apgUtfEzyqwtFN9MZp0Foq60Htag==
account=eoslog
container=eoslog
repository=$(cd "$(dirname "$0")/.." && pwd)
action=${1:-show}

# shellcheck source=server_functions.sh
. "$repository/conf/server_functions.sh"

directory=$(directory_of azure "${2:-}")

program() {
    local place=$repository/.cache/azure/npm/$version
    if [ ! -d "$place" ]; then
        [ "$action" != find ] || fail "There is no Azurite on this machine: \`conf/azure_server.sh install\` installs it with npm."
        install_with_npm "$place"
    fi
    echo "$place/node_modules/azurite/dist/src/blob/main.js"
}

install_with_npm() {
    command -v npm >/dev/null || fail "There is no server for az://: install Node.js 20 or later with npm."
    echo "Installing Azurite $version with npm (one to two minutes, once)" >&2
    mkdir -p "$1.$$"
    trap 'rm -rf "$1.$$"' EXIT
    npm install --prefix "$1.$$" --ignore-scripts --no-audit --no-fund --loglevel error "azurite@$version" >&2 ||
        fail "Azurite $version could not be installed; see above."
    grep -qF "$checksum" "$1.$$/node_modules/.package-lock.json" ||
        fail "azurite $version is not the one that is pinned here."
    mv "$1.$$" "$1"
    trap - EXIT
}

start() {
    if is_running azure; then
        return
    fi
    local server port key endpoint
    server=$(program)
    mkdir -p "$directory/data"
    chmod 700 "$directory"
    key=$(head -c 48 /dev/urandom | base64 | tr -d "\n")
    export AZURITE_ACCOUNTS="$account:$key"
    launch azure node "$server" --blobHost 127.0.0.1 --blobPort %PORT% --location "$directory/data" --silent \
        --disableTelemetry --skipApiVersionCheck
    endpoint=http://127.0.0.1:$port/$account
    rm -f "$directory/environment"
    (
        umask 077
        echo "export AZURE_STORAGE_CONNECTION_STRING='DefaultEndpointsProtocol=http;AccountName=$account;AccountKey=$key;BlobEndpoint=$endpoint;'" \
            >"$directory/environment"
    )
    make_container "$endpoint" "$key"
}

make_container() {
    ENDPOINT=$1 KEY=$2 node - "$account" "$container" <<'END' || fail "The container could not be made."
const [account, container] = process.argv.slice(2);
const date = new Date().toUTCString();
const signed = `PUT${"\n".repeat(12)}x-ms-date:${date}\nx-ms-version:2023-11-03\n/${account}/${account}/${container}\nrestype:container`;
const signature = require("crypto").createHmac("sha256", Buffer.from(process.env.KEY, "base64")).update(signed).digest("base64");
const headers = { "x-ms-date": date, "x-ms-version": "2023-11-03", Authorization: `SharedKey ${account}:${signature}` };
fetch(`${process.env.ENDPOINT}/${container}?restype=container`, { method: "PUT", headers }).then((answer) => {
    process.exit([201, 409].includes(answer.status) ? 0 : 1);
});
END
}

stop() {
    end azure
    rm -f "$directory/environment"
}

show() {
    is_running azure || fail "No server for az:// runs with its data in $directory."
    cat <<END
A server for az:// runs with its data in $directory, with the container "$container". To use it:
  . $directory/environment
  eoslog --store az://$container/quickstart topics create payments
  eoslog --store az://$container/quickstart describe
END
}

case $action in
    find | install) program ;;
    start)
        start
        show
        ;;
    stop) stop ;;
    run) run_until_input_ends "${2:-}" ;;
    show) show ;;
    with)
        shift
        run_with azure "$@"
        ;;
    *) fail "$action is no action of $0; valid are find, install, start, stop, run, show and with." ;;
esac
