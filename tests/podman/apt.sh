# Debian's packages, while another process may be getting some: sourced by the scripts that make tests ready.

# Runs apt-get, again for ten minutes while another process has a lock. Its own option waits for dpkg's lock only, not
# for those of the lists and the archives.
apt_get() {
    local said tries=1
    until said=$(LC_ALL=C apt-get -qq -o DPkg::Lock::Timeout=600 "$@" 2>&1 9>&-); do
        case "$said" in *"Could not get lock"*) ;; *) tries=120 ;; esac
        if [ "$tries" -ge 120 ]; then printf '%s\n' "$said"; return 1; fi
        tries=$((tries + 1))
        sleep 5
    done
    printf '%s\n' "$said"
}
