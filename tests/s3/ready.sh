#!/usr/bin/env bash
# Makes an S3 server ready for tests, and ends it again.
#
#   tests/s3/ready.sh [STATE_DIR]        prints what tests want to have in their environment
#   tests/s3/ready.sh stop [STATE_DIR]   ends what the first form started; the server stays
#
# FOLDSPACE_TEST_S3 is the address of moto, in the release of requirements.txt, with the bucket `bucket`; it keeps objects in
# memory. A server that runs already is used by whoever comes next, and ends with the last of its users: each is a process,
# ENGINE_USER or else the parent.
set -euo pipefail

service=s3
address_file=address
# shellcheck source=tests/service.sh
. "$(dirname "$0")/../service.sh"

install_server() {
    install_python
    say "installing the server"
    rm -rf "$made"
    get python3 -m venv "$made"
    get "$made/bin/pip" install --disable-pip-version-check --no-input --no-deps --no-compile \
        --only-binary :all: --require-hashes -r "$here/requirements.txt"
    touch "$made/whole"
}

# Makes the bucket, once the server has said which port it got.
make_bucket() {
    address=$(sed -n 's|.* http://\(127\.0\.0\.1:[0-9]*\).*|\1|p' "$state/service.log")
    no_proxy='*' python3 - "$address" <<'END'
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(f"http://{sys.argv[1]}/bucket", method="PUT"), timeout=10)
END
}

start_service() {
    setsid "$made/bin/python" "$made/bin/moto_server" -H 127.0.0.1 -p 0 </dev/null >"$state/service.log" 2>&1 9>&- &
    echo $! >"$state/pid"
    await make_bucket
    echo "$address" >"$socket"
}

stop() { if runs; then end_service; fi; }

if [ "$mode" = stop ]; then
    rm -f "$state/users/$user"
    stop_unless_used
    exit
fi

# Of the release, so that another branch's server is another.
made=$state/$(cat "$here/requirements.txt" <(python3 -VV) | sha256sum | cut -c1-12)
[ -e "$made/whole" ] || install_server
begin
enter
printf 'export FOLDSPACE_TEST_S3=%q\n' "$(cat "$socket")"
