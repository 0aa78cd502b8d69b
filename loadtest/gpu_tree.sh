#!/usr/bin/env bash
# Make the copy of this tree that travels to a machine with a GPU: what git tracks, as it is now, but for weights that
# are not measured there, and wheels of what a CUDA image with torch usually lacks. It stays under 50 MB, or this fails.
#
#   bash loadtest/gpu_tree.sh FOLDER            then, there: bash loadtest/gpu.sh right
#
# The corpora of `throughput` and `train` lie beside the folder: ../shared/corpora of it, or --corpora there.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?the folder to make}
model=models/tatoeba-en-de # of `checks` and `real`
lacking=(array-api-compat sacremoses subword-nmt) # pure Python, 1 MB together
most=$((50 << 20))

mkdir -p "$folder"
[ -z "$(ls -A "$folder")" ] || { echo "$folder is not empty" >&2; exit 1; }
git ls-files -z | while IFS= read -r -d '' path; do
  case $path in
    "$model"/*) ;;
    models/*/onnx/* | models/*.safetensors | *.png | *.svg | docker/* | deploy/*) continue ;;
  esac
  [ -e "$path" ] && printf '%s\0' "$path"
done | tar --null -T - -cf - | tar -xf - -C "$folder"
"${PYTHON:-python3}" -m pip download --quiet --retries 1 --timeout 20 --no-deps --only-binary :all: -c constraints.txt -d "$folder/wheels" \
  "${lacking[@]}" || echo "no wheels of ${lacking[*]}: that machine must have them" >&2
git rev-parse --short=12 HEAD > "$folder/REVISION" # of the record: there is no repository there
size=$(du -sb "$folder" | cut -f1)
if [ "$size" -gt "$most" ]; then
  echo "$folder takes $size bytes, more than $most: leave out what is not needed there" >&2
  exit 1
fi
echo "$folder: $size bytes"
