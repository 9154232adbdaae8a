#!/bin/sh
# The user of the image, and its directory. ROOT is another root than / in tests.
set -eu
root=${ROOT:-}
grep -q '^bookkeeper:' "$root/etc/group" || echo 'bookkeeper:x:10000:' >>"$root/etc/group"
grep -q '^bookkeeper:' "$root/etc/passwd" ||
  echo 'bookkeeper:x:10000:10000::/var/lib/bookkeeper:/usr/sbin/nologin' >>"$root/etc/passwd"
mkdir -p "$root/var/lib/bookkeeper" "$root/etc/bookkeeper"
chmod 0750 "$root/var/lib/bookkeeper"
if [ "$(id -u)" = 0 ]; then chown 10000:10000 "$root/var/lib/bookkeeper"; fi
