#!/usr/bin/env bash
# Train the shipped models on a GPU in one call, each for as many minutes as it is given. See docs/gpu.md.
# Flags are those of `python -m loadtest.gpu_train --help`.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

"$python" - <<'PY'
import importlib.util
import sys

needed = "torch numpy safetensors sentencepiece array_api_compat sacremoses subword_nmt onnx ml_dtypes tqdm".split()
missing = [name for name in needed if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"missing: {', '.join(missing)}; run: pip install -c constraints.txt -e '.[train]'")
PY

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} # several runs share the processor
exec "$python" -m loadtest.gpu_train "$@"
