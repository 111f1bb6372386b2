# Who uses an engine: sourced by ready.sh and rootless.sh, which have set $state. Each user is a process, whose
# number is a file's name and whose start is in the file.

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
