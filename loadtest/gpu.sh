#!/usr/bin/env bash
# What needs a GPU, one call for each purpose, within 9 minutes each and whole after every finding. See docs/gpu.md.
#
#   bash loadtest/gpu.sh right     tests, checks and first figures: is it right, and what does a step consist of?
#   bash loadtest/gpu.sh ten       for a machine that is lent for ten minutes: tests, races, steps beside their predictions
#   bash loadtest/gpu.sh fast      batch 1 and a full lane of the cuda backend, with profiles: what to mend next?
#   bash loadtest/gpu.sh record    the figures of all backends and peers, for docs/benchmarks.md
#   bash loadtest/gpu.sh train     the shipped recipes, each for some minutes
#
# More flags are those of `python -m loadtest.engine.gpu_bench --help`, or `...gpu_train --help`.
# DEVICE=cpu bash loadtest/gpu.sh right --tiny tries the script itself, anywhere.
# Everything it says and finds lies in $OUT (docs/benchmarks without it). Packages are taken from wheels/, where
# loadtest/gpu_tree.sh has put what a CUDA image lacks; nothing is fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
device=${DEVICE:-cuda}
out=${OUT:-docs/benchmarks}
purpose=${1:-}
[ $# -gt 0 ] && shift

case $purpose in
  right) flags=(--parts "tests,checks,single,profiles" --backends "cuda,torch,tensorrt" --seconds 420) ;;
  ten) flags=(--parts "checks,steps,ablations,host,profiles" --backends cuda --seconds 300) ;;
  fast) flags=(--parts "single,throughput,profiles" --backends cuda --precisions "bf16,fp32" --seconds 480) ;;
  record) flags=(--parts "checks,single,throughput,arrivals,real" --seconds 500) ;;
  train) flags=() ;;
  *)
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
mkdir -p "$out"
log=$out/$purpose.log
export PYTHONUNBUFFERED=1
[ -f REVISION ] && export CONVOY_REVISION=${CONVOY_REVISION:-$(cat REVISION)}

if [ -d wheels ]; then # into a folder of its own: the machine's packages stay as they are
  site=$(mktemp -d)
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" wheels/*.whl |& tee "$log" || true
  export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$site # behind what is there
else
  : > "$log"
fi

# What there is comes first, whatever happens later.
{
  date -u
  uname -srm
  nproc
  free -g || true
  df -h . || true
  nvidia-smi || echo "no nvidia-smi"
  nvcc --version || echo "no nvcc"
  command -v compute-sanitizer ncu cuobjdump || true
  "$python" - "$purpose" <<'PY' || true
import importlib.util
import sys
from importlib import metadata

print(sys.version)
# by the name that is imported; torch is the machine's own, built for its driver
needed = {"torch": "torch", "numpy": "numpy", "safetensors": "safetensors", "sentencepiece": "sentencepiece"}
needed |= {"array_api_compat": "array-api-compat", "sacremoses": "sacremoses", "subword_nmt": "subword-nmt"}
needed |= {"onnx": "onnx", "ml_dtypes": "ml_dtypes", "typing_extensions": "typing_extensions"}
needed |= {"tqdm": "tqdm"} if sys.argv[1] == "train" else {"pytest": "pytest", "hypothesis": "hypothesis"}
there = {"onnxruntime": "onnxruntime", "tensorrt": "tensorrt", "xdist": "pytest-xdist", "triton": "triton"}
missing = []
for name, package in (needed | there).items():
    if importlib.util.find_spec(name) is None:
        missing += [package] if name in needed else []
        continue
    try:
        print(package, metadata.version(package))
    except metadata.PackageNotFoundError:
        print(package, "of an unknown version")
if missing:
    print(f"missing: {', '.join(missing)}; what needs them will say so. Where there is a network:")
    print(f"  pip install --no-deps {' '.join(missing)}")
PY
} |& tee -a "$log"

"$python" - "$device" <<'PY' |& tee -a "$log"
import sys

try:
    import torch
except ImportError as error:
    sys.exit(f"missing: torch, a build for this machine's CUDA (https://pytorch.org): {error}")
if sys.argv[1].startswith("cuda") and not torch.cuda.is_available():
    from engine.backends.gpus import find_gpus

    reason = find_gpus().reason or "torch finds none: check the driver with nvidia-smi"
    sys.exit(f"no GPU: {reason}; or try the script itself: DEVICE=cpu and --tiny")
print("torch", torch.__version__, "cuda", torch.version.cuda)
PY

if [ "$purpose" = train ]; then
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} # several runs share the processor
  "$python" -m loadtest.engine.gpu_train --device "$device" --out "$out" "$@" |& tee -a "$log"
  exit
fi
# Run some tests of kernels under compute-sanitizer, those that have not run on a device first: sanitize TOOL SECONDS EXPRESSION
sanitize() {
  command -v compute-sanitizer > /dev/null || return 0
  timeout "$2" compute-sanitizer --tool "$1" --error-exitcode 9 "$python" -m pytest -x -v -m gpu -o addopts= \
    -o filterwarnings= -p no:cacheprovider -k "$3" tests/engine/kernels/test_{products,caches,attention,convolutions}.py \
    > "$out/$1.log" 2>&1 ||
    echo "compute-sanitizer: $1 ended with $? (124: out of time), see $out/$1.log" | tee -a "$log"
}

bench() { "$python" -m loadtest.engine.gpu_bench --device "$device" "$@" |& tee -a "$log"; }

code=0
record=$out/$(date -u +%F)-gpu-$purpose
fused="listed_tokens or wide_product or over_caches or writers_of or compute_taps or product_of_a_lookup or by_tensor_cores"
if [ "$purpose" = ten ]; then # the models are written and races are searched while the tests run
  models=$(mktemp -d)
  tiny=()
  [[ " $* " == *" --tiny "* ]] && tiny=(--tiny)
  "$python" -m loadtest.engine.gpu_bench.models "$models" "${tiny[@]}" |& tee -a "$log" &
  sanitize racecheck 110 "$fused" &
  sanitize synccheck 110 "$fused" &
  bench --parts tests --seconds 120 "${tiny[@]}" --out "$record-tests.json" || code=$?
  wait
  flags+=(--folder "$models")
fi
bench --out "$record.json" "${flags[@]}" "$@" || code=$?
if [ "$purpose" = right ]; then # the kernels with the most to go wrong, within the time that is left
  sanitize memcheck 75 "compute or append or copies or attention"
  sanitize racecheck 60 "$fused"
  sanitize synccheck 60 "$fused"
fi
exit "$code"
