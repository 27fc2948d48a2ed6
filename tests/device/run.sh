#!/usr/bin/env bash
# The checks for a machine with a GPU: builds kernels, models and trainer with LibTorch alone and runs their tests.
#   tests/device/run.sh             skipped, loudly and with exit code 0, where there is no GPU
#   tests/device/run.sh --anyway    without a GPU too (to try this script)
#   tests/device/run.sh --prepare   before, on a Debian machine: puts what the other lacks into build/device-parts
#                                   (headers and static libraries, 2 MB), to be carried there
# LibTorch is the one in PERDURA_LIBTORCH_SITE (a site-packages folder), else in build/libtorch, else python3's.
set -euo pipefail
cd "$(dirname "$0")/../.."
parts=$PWD/build/device-parts
build=build/device
mkdir -p build

prepare() {
  local lib
  lib=/usr/lib/$(gcc -print-multiarch)
  rm -rf "$parts"
  mkdir -p "$parts/include" "$parts/lib"
  cp -r /usr/include/doctest "$parts/include/"
  cp /usr/include/{xxhash,xxh3,zlib,zconf}.h "$parts/include/"
  cp "$lib"/lib{xxhash,z}.a "$parts/lib/"
  echo "$parts is ready"
}

torch_site() {
  local site
  if [ -n "${PERDURA_LIBTORCH_SITE:-}" ]; then
    echo "$PERDURA_LIBTORCH_SITE"
  elif site=$(compgen -G 'build/libtorch/lib/python3*/site-packages'); then
    echo "$PWD/$site"
  else
    python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))'
  fi
}

case ${1:-} in
  --prepare) prepare; exit 0 ;;
  --anyway) echo "== no GPU is asked for: the CPU code alone is tested" ;;
  '')
    if ! { command -v nvidia-smi >/dev/null && nvidia-smi; }; then
      echo "== SKIPPED: no GPU on this machine (nvidia-smi found none): NOTHING was tested"
      exit 0
    fi ;;
  *) echo "usage: tests/device/run.sh [--prepare | --anyway]" >&2; exit 2 ;;
esac

cuda_sources=$(find kernels worker -name '*.cu' | wc -l)
echo "== $cuda_sources CUDA source files in this tree"
[ "$cuda_sources" != 0 ] || echo "== the tests below run this machine's CPU code: there is no GPU code yet"

[ -d "$parts" ] || parts=
generator=$(command -v ninja >/dev/null && echo Ninja || echo 'Unix Makefiles')
echo "== build: $build, $(c++ --version | head -1), $(nvcc --version 2>/dev/null | tail -1 || true)"
cmake -S . -B "$build" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DPERDURA_DEVICE=ON \
  "-DPERDURA_DEVICE_PARTS=$parts" "-DLIBTORCH_SITE=$(torch_site)" >"$build.log" || { cat "$build.log"; exit 1; }
cmake --build "$build" -j "$(nproc)"
exec ctest --test-dir "$build" -L device --output-on-failure --no-tests=error
