"""Everything that is to be measured on a GPU, in one call: `bash loadtest/gpu.sh` (docs/gpu.md)."""
