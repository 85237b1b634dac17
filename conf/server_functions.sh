# Functions of the scripts that run an object store on this machine. A script sets these variables: $repository, $action,
# and $directory, where the server keeps its data. It defines `start`, which launches the server and writes
# $directory/environment, and `show`, which says how to use it.

fail() {
    echo "$1" >&2
    exit 1
}

# directory_of NAME [DIR]: print where the server keeps its data: in DIR, by default in .cache/NAME. If .cache is a link,
# other checkouts may have the same one. So the checkout has a directory of its own there.
directory_of() {
    if [ "$action" != with ] && [ -n "${2:-}" ]; then
        mkdir -p "$2"
        (cd "$2" && pwd)
    elif [ -L "$repository/.cache" ]; then
        echo "$repository/.cache/$1/of-$(basename "$repository")-$(echo "$repository" | cksum | cut -d ' ' -f 1)"
    else
        echo "$repository/.cache/$1"
    fi
}

# install_with_go WHAT MODULE PACKAGE BINARY: build a Go module of the pinned $version and $checksum.
install_with_go() {
    local place name
    place=$(dirname "$4")
    name=$(basename "$4")
    command -v go >/dev/null || fail "There is no $1: install $name $version or later, or Go 1.25 or later to build it."
    echo "Building $name $version with Go (two to five minutes, once)" >&2
    mkdir -p "$place/new.$$"
    trap 'rm -rf "$place/new.$$"' EXIT
    # Go checks all modules against its public log of checksums; the second check holds where that is switched off.
    GOBIN=$place/new.$$ CGO_ENABLED=0 go install "$2${3:+/$3}@$version" >&2 ||
        fail "$name $version could not be built; see above."
    go version -m "$place/new.$$/$name" | grep -qF "$checksum" || fail "$2 $version is not the one that is pinned here."
    mv "$place/new.$$/$name" "$4"
    rmdir "$place/new.$$"
    trap - EXIT
}

# is_running NAME: the process of $directory/NAME.pid runs. Its arguments have the directory.
is_running() {
    local pid
    # Without -ww the line is cut at COLUMNS.
    pid=$(cat "$directory/$1.pid" 2>/dev/null) &&
        ps -ww -o args= -p "$pid" | grep -F -e "$directory/data" -e "$directory/iam" >/dev/null
}

# launch NAME COMMAND…: run a command, in which %PORT% stands for a free port, $port from then on. Its process id stands
# in $directory/NAME.pid, and its output in $directory/NAME.log.
launch() {
    local name=$1
    shift
    for _ in 1 2 3 4 5 6 7 8; do
        port=$((20000 + RANDOM % 12000))
        # A server that starts slowly would be taken for the one that has the port.
        ! (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || continue
        (cd "$directory/data" && exec "${@//%PORT%/$port}") </dev/null >"$directory/$name.log" 2>&1 &
        echo $! >"$directory/$name.pid"
        if answers "$port" "$name"; then
            return
        fi
        kill "$!" 2>/dev/null || true
    done
    fail "The server did not start: $(tail -n 3 "$directory/$name.log")"
}

random() {
    od -An -N "$1" -tx1 /dev/urandom | tr -d ' \n'
}

answers() {
    for _ in $(seq 300); do
        is_running "$2" || return 1
        # A port that somebody else has answers too, so the server must outlive the answer.
        if (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
            sleep 0.2
            is_running "$2"
            return
        fi
        sleep 0.1
    done
    return 1
}

# end NAME: end the process of $directory/NAME.pid.
end() {
    if is_running "$1"; then
        local pid
        pid=$(cat "$directory/$1.pid")
        kill "$pid"
        for _ in $(seq 50); do
            is_running "$1" || break
            sleep 0.1
        done
        if is_running "$1"; then
            kill -KILL "$pid"
        fi
    fi
    rm -f "$directory/$1.pid"
}

# run_until_input_ends [DIR]: run the server until standard input ends, in DIR or in a new directory that is removed.
run_until_input_ends() {
    local started=started
    if [ -n "${1:-}" ]; then
        trap stop EXIT
    else
        mkdir -p "$directory"
        directory=$(mktemp -d "$directory/run-XXXXXX")
        trap 'stop; rm -rf "$directory"' EXIT
        started=$directory
    fi
    start
    echo "$started"
    cat >/dev/null
}

# run_with NAME COMMAND…: run a command that finds the server, and stop the server if it did not run before. A server of
# another run ends with that run. So this one then has a server of its own, in a new directory that is removed.
run_with() {
    mkdir -p "$directory"
    if kill -0 "$(cat "$directory/run.pid" 2>/dev/null)" 2>/dev/null; then
        directory=$(mktemp -d "$directory/run-XXXXXX")
        trap 'stop; rm -rf "$directory"' EXIT
    elif ! is_running "$1"; then
        echo $$ >"$directory/run.pid"
        trap 'stop; rm -f "$directory/run.pid"' EXIT
    fi
    shift
    start
    # shellcheck source=/dev/null
    . "$directory/environment"
    "$@"
}
