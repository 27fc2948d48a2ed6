#!/usr/bin/env bash
# Installs what Perdura is compared with into a folder of its own: PyTorch (DDP with Gloo, torchrun), and torchft.
#   setup.sh [DIR]        default: ${XDG_CACHE_HOME:-~/.cache}/perdura/peers; about 1.5 to 4 GB, reused when complete
# Prints the folder as its last line: DIR/venv/bin/python runs the peers, DIR/torchft goes into PYTHONPATH.
set -euo pipefail

dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/perdura/peers}
torch=2.11.0
torchft='torchft-nightly==2026.10.26'  # 0.2.0 ends the survivors when a peer dies
python_packages=(filelock fsspec jinja2 networkx 'sympy>=1.13.3' typing_extensions numpy 'setuptools<82' packaging
  opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp-proto-http)
stamp="torch $torch, $torchft"

# torch's wheel links CUDA though nothing here uses a GPU. Only the libraries that this machine lacks are installed, in
# the versions that this torch names.
wheel_of() {
  case $1 in
    libcublas*) echo 'cuda-toolkit[cublas]==13.0.2' ;;
    libcudart*) echo 'cuda-toolkit[cudart]==13.0.2' ;;
    libcufft*) echo 'cuda-toolkit[cufft]==13.0.2' ;;
    libcufile*) echo 'cuda-toolkit[cufile]==13.0.2' ;;
    libcupti*) echo 'cuda-toolkit[cupti]==13.0.2' ;;
    libcurand*) echo 'cuda-toolkit[curand]==13.0.2' ;;
    libcusolver*) echo 'cuda-toolkit[cusolver]==13.0.2' ;;
    libcusparseLt*) echo 'nvidia-cusparselt-cu13==0.8.0' ;;
    libcusparse*) echo 'cuda-toolkit[cusparse]==13.0.2' ;;
    libnvJitLink*) echo 'cuda-toolkit[nvjitlink]==13.0.2' ;;
    libnvrtc*) echo 'cuda-toolkit[nvrtc]==13.0.2' ;;
    libcudnn*) echo 'nvidia-cudnn-cu13==9.19.0.56' ;;
    libnccl*) echo 'nvidia-nccl-cu13==2.28.9' ;;
    libnvshmem*) echo 'nvidia-nvshmem-cu13==3.4.5' ;;
    *) echo "setup.sh: no wheel is known for $1, which torch $torch needs" >&2; return 1 ;;
  esac
}

missing_wheels() {
  local library
  for library in "$dir"/venv/lib/python3*/site-packages/torch/lib/{libtorch_cuda,libtorch_python,libtorch_cpu}.so; do
    ldd "$library" | awk '/not found/ {print $1}'
  done | sort -u | while read -r library; do wheel_of "$library"; done | sort -u
}

if [ "$(cat "$dir/ready" 2>/dev/null)" != "$stamp" ]; then
  echo "installing $stamp into $dir" >&2
  rm -rf "$dir/venv" "$dir/torchft" "$dir/ready"
  mkdir -p "$dir"
  python3 -m venv "$dir/venv"
  # pip calls the CUDA wheels that are left out on purpose a conflict: its words are shown only if it fails.
  pip() {
    "$dir/venv/bin/pip" -q --disable-pip-version-check install "$@" >"$dir/install.log" 2>&1 ||
      { cat "$dir/install.log" >&2; return 1; }
  }
  pip "${python_packages[@]}"
  pip --no-deps "torch==$torch"
  wheels=$(missing_wheels)
  # shellcheck disable=SC2086  # one word a wheel
  [ -z "$wheels" ] || pip $wheels
  pip --no-deps --target "$dir/torchft" "$torchft"
  PYTHONPATH=$dir/torchft "$dir/venv/bin/python" -W ignore -c \
    'import torch, torchft; assert torch.distributed.is_gloo_available(); print("torch", torch.__version__)' >&2
  echo "$stamp" >"$dir/ready"
fi
echo "$dir"
