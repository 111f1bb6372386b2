#!/bin/sh
# Installs foldspace from a release.
set -eu

usage() {
    cat <<END
usage: install.sh [--from URL|DIRECTORY] [--to PREFIX]

Downloads the tarball for this machine, compares its SHA-256 with SHA256SUMS, and puts the programs into PREFIX/bin,
manual pages and completions into PREFIX/share. PREFIX is ~/.local by default.
END
}

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

# Copies a file of the release: get NAME FILE
get() {
    case $from in
        https://*) download "$from/$1" "$2" ;;
        # Anyone on the network could change what comes by plain HTTP, except from this machine.
        http://127.0.0.1[:/]* | http://localhost[:/]*) download "$from/$1" "$2" ;;
        http://*) fail "$from is not encrypted; use https" ;;
        file://*) cp "${from#file://}/$1" "$2" || fail "$from has no $1" ;;
        *) cp "$from/$1" "$2" || fail "$from has no $1" ;;
    esac
}

download() {
    if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --proto "=${from%%:*},https" --output "$2" "$1" ||
            fail "$1 can't be downloaded"
    elif command -v wget >/dev/null; then
        wget --quiet --output-document "$2" "$1" || fail "$1 can't be downloaded"
    else
        fail "downloading needs curl or wget"
    fi
}

# Puts a file in place at once, also if the old one is running: put MODE FILE DIRECTORY
put() {
    mkdir -p "$3"
    install -m "$1" "$2" "$3/.foldspace-new.$$"
    mv -f "$3/.foldspace-new.$$" "$3/$(basename "$2")"
}

# Everything is in a function, so that a script that did not arrive whole does nothing.
main() {
    from=${FOLDSPACE_RELEASE:-@URL@}
    prefix=${HOME:-}/.local
    while [ $# -gt 0 ]; do
        case $1 in
            --from | --to) [ $# -ge 2 ] || fail "$1 needs a value" ;;
        esac
        case $1 in
            --from) from=${2%/} && shift 2 ;;
            --to) prefix=$2 && shift 2 ;;
            -h | --help) usage && exit ;;
            *) fail "unknown argument: $1" ;;
        esac
    done
    case $from in
        @*) fail "this copy is not from a release: name one with --from" ;;
    esac
    [ "$(uname -s)" = Linux ] || fail "foldspace runs on Linux only"
    case $(uname -m) in
        x86_64 | amd64) arch=x86_64 ;;
        aarch64 | arm64) arch=aarch64 ;;
        *) fail "there is no program for $(uname -m); see docs/releasing.md to build one" ;;
    esac
    for needed in tar gzip sha256sum install; do
        command -v "$needed" >/dev/null || fail "it needs $needed"
    done

    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    get SHA256SUMS "$work/SHA256SUMS"
    line=$(grep "^[0-9a-f]\{64\}  foldspace-[0-9][^ /]*-$arch-unknown-linux-[a-z]*\.tar\.gz\$" "$work/SHA256SUMS") ||
        fail "$from has no program for $arch"
    [ "$(printf '%s\n' "$line" | wc -l)" -eq 1 ] || fail "$from has several programs for $arch"
    tarball=${line#*  }
    get "$tarball" "$work/$tarball"
    (cd "$work" && printf '%s\n' "$line" | sha256sum --check --status) ||
        fail "$tarball is damaged: its SHA-256 is not the one in SHA256SUMS; nothing was installed"
    tar -xzf "$work/$tarball" -C "$work"
    made=$work/${tarball%.tar.gz}
    "$made/foldspace" --version >/dev/null || fail "the program does not run on this machine; nothing was installed"

    put 755 "$made/foldspace-evaluator" "$prefix/bin"
    put 755 "$made/foldspace" "$prefix/bin"
    for page in "$made"/man/man1/*; do
        put 644 "$page" "$prefix/share/man/man1"
    done
    put 644 "$made/completions/_foldspace" "$prefix/share/zsh/site-functions"
    put 644 "$made/completions/foldspace.fish" "$prefix/share/fish/vendor_completions.d"
    mv "$made/completions/foldspace.bash" "$made/completions/foldspace"
    put 644 "$made/completions/foldspace" "$prefix/share/bash-completion/completions"
    for text in "$made"/LICENSE* "$made/foldspace.cdx.json"; do
        put 644 "$text" "$prefix/share/doc/foldspace"
    done
    echo "$("$prefix/bin/foldspace" --version) is in $prefix/bin"
    case :$PATH: in
        *":$prefix/bin:"*) ;;
        *) echo "$prefix/bin is not in your PATH: add it, or run $prefix/bin/foldspace" ;;
    esac
    echo "next: foldspace attach, in a directory where a coding agent works"
}

main "$@"
