"""ONNX Runtime: the default backend; on the CPU without torch.

sessions          sessions of a bundle's graphs
graph_metadata    what a serialised graph says of itself
executor          one lane
held_session      a step's session bound to numpy's arrays
native_step       the host's work of plain steps by the native library
on_cuda           sessions on torch's tensors
"""

import os

# from 1.31 on ONNX Runtime reports sessions to its maker unless this is set when it is imported
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
