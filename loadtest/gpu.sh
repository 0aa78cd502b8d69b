#!/usr/bin/env bash
# All that needs a GPU, in one call: tests, checks against the CPU, figures, profiles. See docs/gpu.md.
# Flags are those of `python -m loadtest.gpu_bench --help`; DEVICE=cpu bash loadtest/gpu.sh --tiny tries it anywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
device=${DEVICE:-cuda}

"$python" - "$device" <<'PY'
import importlib.util
import sys

needed = "torch numpy safetensors sentencepiece array_api_compat sacremoses subword_nmt onnx ml_dtypes pytest hypothesis".split()
missing = [name for name in needed if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"missing: {', '.join(missing)}; run: pip install -c constraints.txt -e '.[torch]' pytest hypothesis")
import torch

if sys.argv[1].startswith("cuda") and not torch.cuda.is_available():
    sys.exit("no CUDA device: check nvidia-smi, and that torch is a CUDA build")
PY

exec "$python" -m loadtest.gpu_bench --device "$device" "$@"
