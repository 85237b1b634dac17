#!/usr/bin/env bash
# A real S3 server on this machine, for tests, the demo and trying things out: versitygw over a directory.
#
#   s3_server.sh find            print the path of the server's binary, and fail if there is none
#   s3_server.sh install         the same, but build it with Go if there is none
#   s3_server.sh start [DIR]     start it on a free port with its data below DIR, and make the bucket "eoslog"
#   s3_server.sh stop [DIR]      stop it; its data stay
#   s3_server.sh run DIR         start it, print "started", and stop it once standard input ends, as it does when the
#                                caller dies
#   s3_server.sh run             the same in a new directory, which is printed, and removed in the end
#   s3_server.sh run-with-iam    the same with versitygw's IAM service, so that there may be more accounts than the one
#                                and each is held to its policies
#   s3_server.sh show [DIR]      say how to use it
#   s3_server.sh with COMMAND…   run a command that finds the server of .cache/s3, and stop it if it did not run before
#
# DIR is .cache/s3 by default, or below it (see directory_of). DIR/environment (mode 600) sets the variables by which
# eoslog, Spark and any other client of S3 find the server; its random credentials stand nowhere else. The binary is the
# one that EOSLOG_S3_SERVER names, or `versitygw` on the PATH, or is built into .cache/s3/bin. See docs/operations.md
# for the servers that were compared.
set -euo pipefail

module=github.com/versity/versitygw
version=v1.8.0
checksum=h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc=
bucket=eoslog
repository=$(cd "$(dirname "$0")/.." && pwd)
action=${1:-show}

# shellcheck source=server_functions.sh
. "$repository/conf/server_functions.sh"

directory=$(directory_of s3 "${2:-}")

binary() {
    local built=$repository/.cache/s3/bin/$version/versitygw
    if [ -n "${EOSLOG_S3_SERVER:-}" ]; then
        [ -x "$EOSLOG_S3_SERVER" ] || fail "EOSLOG_S3_SERVER names $EOSLOG_S3_SERVER, which is no program."
        echo "$EOSLOG_S3_SERVER"
    elif command -v versitygw; then
        :
    elif [ -x "$built" ]; then
        echo "$built"
    elif [ "$action" = find ]; then
        fail "There is no S3 server on this machine: \`make s3\` builds one with Go 1.25 or later."
    else
        install_with_go "an S3 server" "$module" cmd/versitygw "$built"
        echo "$built"
    fi
}

start() {
    if is_running s3; then
        return
    fi
    local server port iam_port=""
    server=$(binary)
    mkdir -p "$directory/data/$bucket"
    chmod 700 "$directory"
    ROOT_ACCESS_KEY_ID=$(random 10)
    ROOT_SECRET_ACCESS_KEY=$(random 20)
    export ROOT_ACCESS_KEY_ID ROOT_SECRET_ACCESS_KEY
    if [ "$action" = run-with-iam ]; then
        mkdir -p "$directory/iam"
        # The path of a socket may have 108 characters, so it is told from the directory that the S3 server goes to.
        launch_server iam iam --dir "$directory/iam" --private-ports ../iam.socket
        iam_port=$port
        until [ -S "$directory/iam.socket" ]; do
            is_running iam || fail "The IAM service did not start: $(tail -n 3 "$directory/iam.log")"
            sleep 0.1
        done
        launch_server s3 --iam-standalone-endpoint ../iam.socket posix "$directory/data"
    else
        launch_server s3 posix "$directory/data"
    fi
    write_environment "$port" "$iam_port"
}

# launch_server NAME ARGUMENT…: launch the binary on a free port.
launch_server() {
    local name=$1
    shift
    launch "$name" "$server" --port 127.0.0.1:%PORT% --keep-alive --quiet "$@"
}

write_environment() {
    rm -f "$directory/environment"
    (
        umask 077
        cat >"$directory/environment" <<EOF
export AWS_ENDPOINT_URL=http://127.0.0.1:$1
export AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1
export AWS_ACCESS_KEY_ID=$ROOT_ACCESS_KEY_ID
export AWS_SECRET_ACCESS_KEY=$ROOT_SECRET_ACCESS_KEY
${2:+export AWS_ENDPOINT_URL_IAM=http://127.0.0.1:$2}
EOF
    )
}

stop() {
    end s3
    end iam
    rm -f "$directory/environment"
}

show() {
    is_running s3 || fail "No S3 server runs with its data in $directory."
    cat <<EOF
An S3 server runs at $(sed -n 's/.*AWS_ENDPOINT_URL=//p' "$directory/environment"), with the bucket "$bucket". To use it:
  . $directory/environment
  eoslog --store s3://$bucket/quickstart topics create payments
  eoslog --store s3://$bucket/quickstart describe
EOF
}

case $action in
    find | install) binary ;;
    start)
        start
        show
        ;;
    stop) stop ;;
    run | run-with-iam)
        run_until_input_ends "${2:-}"
        ;;
    show) show ;;
    with)
        shift
        run_with s3 "$@"
        ;;
    *) fail "$action is no action of $0; valid are find, install, start, stop, run, run-with-iam, show and with." ;;
esac
