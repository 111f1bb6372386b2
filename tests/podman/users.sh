# A service and who uses it: sourced by ready.sh and rootless.sh, which have set $state, $socket and $user.
# Each user is a process, whose number is a file's name and whose start is in the file.

# Keeps others from $state until the script ends.
lock_state() {
    exec 9>"$state/lock"
    flock -w 600 9 || fail "another process has been preparing $state for ten minutes"
}

# Whether the process that was started here still runs; what its command line has is $mark or else the socket.
runs() {
    [ -s "$state/pid" ] && tr '\0' ' ' 2>/dev/null <"/proc/$(cat "$state/pid")/cmdline" | grep -qF "${mark:-unix://$socket}"
}

# Waits until the service that was just started lets a command succeed.
await() {
    local _
    for _ in $(seq 600); do
        "$@" >/dev/null 2>&1 && return
        [ -n "$(started "$(cat "$state/pid")")" ] || break
        sleep 0.05
    done
    fail "the service did not start: $(tail -n 3 "$state/service.log")"
}

# Ends the service, after twenty seconds by force, with its group.
end_service() {
    local pid _
    pid=$(cat "$state/pid")
    kill "$pid"
    for _ in $(seq 400); do
        [ -n "$(started "$pid")" ] || break
        sleep 0.05
    done
    [ -z "$(started "$pid")" ] || { say "the service did not end in twenty seconds"; kill -9 -- "-$pid"; }
    rm -f "$state/pid" "$socket"
}

# Ends what nobody uses any more.
stop_unless_used() { if [ "$(count_users)" = 0 ]; then stop; fi; }

# Starts the service unless it runs. If it does not become ready it is not left running.
begin() {
    if runs; then return; fi
    trap stop_unless_used EXIT
    start_service
}

# Counts the user: from here on the service is its.
enter() {
    started "$user" >"$state/users/$user"
    trap - EXIT
}

# When a process was started, which tells it from a later one with its number; nothing of one that has ended,
# whether or not its parent has noticed.
started() {
    local fields
    fields=$(sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null) || return 0
    case "$fields" in [ZX]* | "") return 0 ;; esac
    cut -d ' ' -f 20 <<<"$fields"
}

# Forgets users that have ended.
count_users() {
    local one start count=0
    for one in "$state"/users/*; do
        [ -e "$one" ] || continue
        start=$(started "${one##*/}")
        if [ -n "$start" ] && [ "$start" = "$(cat "$one")" ]; then count=$((count + 1)); else rm -f "$one"; fi
    done
    echo "$count"
}

# Makes the user $account of a rootless engine, which needs further ids.
make_account() {
    if ! id "$account" >/dev/null 2>&1; then
        # Where these are missing a new user gets no further ids.
        touch /etc/subuid /etc/subgid
        useradd --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin "$account" >&2 9>&- \
            || fail "the user $account could not be made"
        touch "$state/made-account"
    fi
    grep -q "^$account:" /etc/subuid && grep -q "^$account:" /etc/subgid \
        || fail "$account has no further ids; usermod --add-subuids and --add-subgids give some"
}
