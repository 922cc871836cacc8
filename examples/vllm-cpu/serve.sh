#!/usr/bin/env bash
# Starts the server that prepare.sh installed, as the process that the supervisor launched: `exec`
# leaves no shell in between.
set -eu
cd "$(dirname "$0")"
unset PYTHONDONTWRITEBYTECODE # compiled Python files halve the second start
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_TARGET_DEVICE=cpu VLLM_CPU_KVCACHE_SPACE=1 \
  VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 CUDA_VISIBLE_DEVICES= PYTHONUNBUFFERED=1
exec work/venv/bin/python work/venv/bin/vllm serve work/tiny-model --served-model-name tiny \
  --host 127.0.0.1 --port "${1:-18450}" --max-model-len 2048 --dtype bfloat16 --enforce-eager
