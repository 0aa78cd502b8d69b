#!/usr/bin/env bash
# All that needs a GPU, in one call: tests, figures, TensorRT. Stops at the first failure. See docs/gpu.md.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
model=${MODEL:-models/tatoeba-de-en}
out=${OUT:-docs/benchmarks}

"$python" - <<'PY'
import sys

import torch

if not torch.cuda.is_available():
    sys.exit("no CUDA device: check nvidia-smi, and that torch is a CUDA build")
print(torch.cuda.get_device_name(), "torch", torch.__version__)
PY

"$python" -m pytest -q -m gpu tests/test_cuda_kernels.py

mkdir -p "$out"
for backend in torch torch-cuda; do
  "$python" -m cli.main bench --model "$model" --backend "$backend" --device cuda --precisions fp32 \
    --json "$out/gpu-$backend.json"
done

if "$python" -c 'import tensorrt' 2>/dev/null; then
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  cp -r "$model" "$copy/model"
  for precision in fp32 fp16 bf16; do
    "$python" -m cli.main export "$copy/model" --to tensorrt --precision "$precision" --beams 5 --slots 32 --verify
    "$python" -m cli.main bench --model "$copy/model" --backend tensorrt --device cuda --precisions "$precision" \
      --beams 5 --sentences 32 --texts 0 --json "$out/gpu-tensorrt-$precision.json"
  done
else
  echo "TensorRT is not installed: its part is left out (pip install tensorrt)"
fi
