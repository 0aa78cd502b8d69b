"""ONNX Runtime: the default backend; on the CPU without torch.

sessions          sessions of a bundle's graphs
graph_metadata    metadata of a serialised graph
executor          one lane
in_place          a step's session with numpy arrays bound in place
native_step       the host's work of plain steps by the native library
on_cuda           sessions on torch tensors
"""

import os

# ONNX Runtime 1.31 and later sends telemetry unless this is set before the import
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
