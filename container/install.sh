#!/bin/sh
# Install bookied and bkctl from the sources in $1 into a new virtual environment $2: the versions
# and hashes of requirements.lock, and nothing else.
set -eu
source=$1
target=$2
pip() { python3 -m pip --python "$target" "$@"; }
python3 -m venv --without-pip "$target"
pip install --quiet --no-cache-dir --require-hashes -r "$source/requirements.lock"
pip install --quiet --no-cache-dir --no-deps "$source"
pip check
"$target/bin/bookied" --version
"$target/bin/bkctl" --version
