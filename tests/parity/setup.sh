#!/usr/bin/env bash
# Installs the Python packages that files are exchanged with (safetensors, diffusers) into a folder of their own, beside
# the PyTorch of tests/bench/peers/setup.sh:
#   setup.sh [DIR]        default: ${XDG_CACHE_HOME:-~/.cache}/perdura/parity; about 150 MB, reused when complete
set -euo pipefail

dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/perdura/parity}
packages=(safetensors==0.8.0 diffusers==0.42.1)
python=${PERDURA_PEER_PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/perdura/peers/venv/bin/python}
[ -x "$python" ] || python=python3

if [ "$(cat "$dir/ready" 2>/dev/null)" != "${packages[*]}" ]; then
  echo "installing ${packages[*]} into $dir" >&2
  rm -rf "$dir"
  mkdir -p "$dir"
  "$python" -m pip -q --disable-pip-version-check install --target "$dir" "${packages[@]}" >"$dir/install.log" 2>&1 ||
    { cat "$dir/install.log" >&2; exit 1; }
  echo "${packages[*]}" >"$dir/ready"
fi
echo "$dir"
