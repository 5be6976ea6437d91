#!/usr/bin/env bash
# From a clone to a served model in one command: installs what the build needs, builds a release,
# fetches the default model once and serves it on 127.0.0.1:8000.
#
#   deploy/quickstart.sh [MODEL] [any flag of "penstock serve"]
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/lib.sh

install_build_packages
need_disk_mb build 1500 "the build"
say "building (release, $(build_jobs) jobs)"
cmake --preset release > build/configure.log 2>&1 ||
  { tail -n 20 build/configure.log >&2; die "cmake failed: see build/configure.log"; }
ninja -C build/release -j "$(build_jobs)" >&2

if [ $# -ge 1 ] && [ "${1#-}" = "$1" ]; then
  model=$1
  shift
else
  model=$(default_model)
  set -- --served-model-name SmolLM2-135M-Instruct "$@"
fi
exec build/release/bin/penstock serve "$model" "$@"
