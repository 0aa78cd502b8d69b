"""All measurements of a GPU in one call: `bash loadtest/gpu.sh` (docs/gpu.md)."""
