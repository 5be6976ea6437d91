#!/usr/bin/env bash
# Installs what the tests need, builds, and runs every test that needs no GPU.
# Idempotent; works from a clean clone and an empty HOME, as root or with sudo.
#
#   tests/run.sh            everything
#   tests/run.sh STEP...    only these: format cpp python tsan release quickstart
set -uo pipefail
cd "$(dirname "$0")/.."
. deploy/lib.sh

root=$PWD
reports=$root/build/reports
failed_steps=""
started=$(date +%s)
mkdir -p "$reports"
rm -f "$reports"/*.xml

# step NAME FUNCTION: runs it with a heading and its time; a failure is remembered, not final.
step() {
  local name=$1 begin status
  shift
  begin=$(date +%s)
  say "$name"
  "$@"
  status=$?
  printf -- '-- %s: %s in %d s\n' "$name" "$([ $status = 0 ] && echo ok || echo FAILED)" \
    $(($(date +%s) - begin)) >&2
  [ $status = 0 ] || failed_steps="$failed_steps, $name"
  return $status
}

setup_packages() {
  install_build_packages
  install_packages libgtest-dev libgmock-dev libbenchmark-dev ccache mold nginx-light prometheus \
    python3-venv
  # Format checks are pinned to one version, which newer releases do not carry.
  if apt-cache show clang-format-14 >/dev/null 2>&1; then install_packages clang-format-14; fi
}

setup_python() {
  venv=$(cache_dir)/test-venv
  local stamp
  stamp=$(sha256sum tests/requirements.txt | cut -d' ' -f1)
  if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check \
      -r tests/requirements.txt && echo "$stamp" > "$venv/stamp"
  fi
}

setup_vocabularies() {
  PENSTOCK_TEST_VOCABULARIES=$("$venv/bin/python" tests/tools/vocabularies.py \
    "$(cache_dir)/vocabularies") && export PENSTOCK_TEST_VOCABULARIES
}

setup_model() { PENSTOCK_TEST_MODEL=$(default_model) && export PENSTOCK_TEST_MODEL; }

check_format() {
  command -v clang-format-14 >/dev/null || { echo "clang-format-14 is not packaged here: skipped"; return 0; }
  git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run -Werror
}

build_preset() {  # build_preset PRESET [ninja targets]
  local preset=$1
  shift
  cmake --preset "$preset" > "$reports/cmake-$preset.log" 2>&1 ||
    { tail -n 20 "$reports/cmake-$preset.log"; return 1; }
  ninja -C "build/$preset" -j "$(build_jobs)" "$@"
}

run_ctest() {  # run_ctest PRESET [ctest arguments]
  local preset=$1
  shift
  ctest --test-dir "build/$preset" -LE "known_failing|gpu" -j "$(nproc)" --output-on-failure \
    --repeat until-pass:2 --output-junit "$reports/ctest-$preset.xml" "$@"
}

# What fails once on a busy machine is run once more; what fails twice has failed.
run_pytest() {
  export PENSTOCK_BIN_DIR=$root/build/dev/bin
  "$venv/bin/python" -m pytest -q tests --ignore tests/quickstart --junitxml "$reports/pytest.xml" ||
    "$venv/bin/python" -m pytest -q tests --ignore tests/quickstart --lf --junitxml "$reports/pytest.xml"
}

run_quickstart() {
  "$venv/bin/python" -m pytest -q tests/quickstart --junitxml "$reports/quickstart.xml"
}

export UBSAN_OPTIONS=print_stacktrace=1
steps=${*:-format cpp python tsan release quickstart}

step "packages" setup_packages || die "the packages could not be installed"
step "Python packages" setup_python || die "the Python packages could not be installed"
step "test vocabularies" setup_vocabularies || die "the test vocabularies could not be fetched"
step "test model" setup_model || die "the test model could not be fetched"
for name in $steps; do
  case $name in
    format) step "format" check_format ;;
    cpp) step "build (ASan, UBSan)" build_preset dev && step "C++ tests" run_ctest dev ;;
    python) step "Python tests" run_pytest ;;
    tsan) step "build (TSan)" build_preset tsan tsan_tests &&
            step "C++ tests under TSan" run_ctest tsan -L tsan ;;
    release) step "build (release, with CUDA where nvcc is)" build_preset release ;;
    quickstart) step "deploy/quickstart.sh's server" run_quickstart ;;
    *) die "unknown step '$name': one of format cpp python tsan release quickstart" ;;
  esac
done

say "total: $(($(date +%s) - started)) s"
[ -z "$failed_steps" ] || echo "failed steps: ${failed_steps#, }"
python3 tests/summary.py "$reports"
counted=$?
[ -z "$failed_steps" ] && exit $counted
exit 1
