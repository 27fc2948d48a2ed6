#!/usr/bin/env bash
# Installs into an empty prefix, runs what is there, uninstalls, and finds nothing left. usage: install_test.sh BUILD
set -euo pipefail
build=$1
scratch=$(mktemp -d)
# A real installation from this build keeps its records.
for file in install_manifest.txt install_folders.txt; do
  if [ -e "$build/$file" ]; then mv "$build/$file" "$scratch/$file"; fi
done
finish() {
  for file in install_manifest.txt install_folders.txt; do
    if [ -e "$scratch/$file" ]; then mv "$scratch/$file" "$build/$file"; fi
  done
  rm -rf "$scratch"
}
trap finish EXIT
fail() { echo "install_test: $*" >&2; exit 1; }

prefix=$scratch/prefix
mkdir -p "$prefix/bin"
touch "$prefix/bin/another"
cmake --install "$build" --prefix "$prefix" >/dev/null

for program in "" coordinator node worker; do
  "$prefix/bin/perdura" $program --version >"$scratch/version" || fail "perdura $program --version failed"
  grep -q '^perdura' "$scratch/version" || fail "perdura $program --version says: $(cat "$scratch/version")"
done
ldd "$prefix/libexec/perdura/perdura-worker" | grep libtorch_cpu | grep -q "$prefix/lib" ||
  fail "the installed worker does not use the installed LibTorch"
[ -e "$prefix/share/perdura/configs/cluster.toml" ] || fail "configs/cluster.toml was not installed"

cmake --build "$build" --target uninstall >/dev/null
left=$(find "$prefix" -not -type d)
[ "$left" = "$prefix/bin/another" ] || fail "after uninstalling: $left"
[ "$(find "$prefix" -mindepth 1 -type d)" = "$prefix/bin" ] || fail "folders are left: $(find "$prefix" -type d)"
