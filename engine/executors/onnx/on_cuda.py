"""Sessions of ONNX Runtime on torch tensors: every input and output is bound by its address.

On a CUDA device, memory, rings and results then never cross the bus, and the host does not wait for the
device. The same code runs on the CPU, where it is tested without a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import array_api_compat.torch as xp
import onnxruntime as ort
import torch
from torch import Tensor

from engine.bundle.graph_io import lane_dtype
from engine.errors import ConfigError
from engine.executors.base import Arrays

PROVIDER: Final = "CUDAExecutionProvider"
INSTALL_HINT: Final = "pip uninstall -y onnxruntime && pip install onnxruntime-gpu; or take --backend cuda"
# by a session's name of a type: dtype of torch, and number of onnx.TensorProto
TORCH_TYPES: Final = {
    "tensor(float)": (torch.float32, 1),
    "tensor(int64)": (torch.int64, 7),
    "tensor(float16)": (torch.float16, 10),
}


class BoundSession:
    """One session on one device."""

    def __init__(self, session: ort.InferenceSession, device: OrtDevice) -> None:
        self.session, self.device = session, device
        self.types = {
            node.name: TORCH_TYPES[node.type][0] for node in (*self.get_inputs(), *self.get_outputs())
        }
        self.elements = {
            node.name: TORCH_TYPES[node.type][1] for node in (*self.get_inputs(), *self.get_outputs())
        }
        self.shapes = {node.name: node.shape for node in (*self.get_inputs(), *self.get_outputs())}
        self.binding = session.io_binding()
        self.options = ort.RunOptions()
        # the streams order the work (`OrtDevice.run`), so the host need not wait for the device
        self.options.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def get_inputs(self) -> Any:
        return self.session.get_inputs()

    def get_outputs(self) -> Any:
        return self.session.get_outputs()

    def run(self, names: list[str], feeds: Mapping[str, Any]) -> list[Tensor]:
        """Return the named outputs.

        names: names of the outputs.
        feeds: inputs by name, tensors or numpy arrays; they are cast to the graph's dtypes, and copied to its
            device.
        """
        tensors = {name: torch.as_tensor(feeds[name]) for name in self.shapes if name in feeds}
        inputs = {name: value.to(self.types[name]).contiguous() for name, value in tensors.items()}
        sizes = self._sizes(inputs)
        outputs = {name: self._empty(name, sizes) for name in names}
        self.binding.clear_binding_outputs()
        for name, value in inputs.items():
            self.binding.bind_input(name, *self._address(name, value))
        for name, value in outputs.items():
            self.binding.bind_output(name, *self._address(name, value))
        self.device.run(self.session, self.binding, self.options)
        return list(outputs.values())

    def _sizes(self, inputs: Mapping[str, Tensor]) -> dict[str, int]:
        """Return the size of each named dimension of the graph for these inputs."""
        sizes = {"K": int(inputs["k"])} if "k" in inputs else {}
        for name, value in inputs.items():
            named = zip(self.shapes[name], value.shape, strict=True)
            sizes |= {dim: size for dim, size in named if isinstance(dim, str)}
        return sizes

    def _empty(self, name: str, sizes: Mapping[str, int]) -> Tensor:
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in self.shapes[name]]
        return torch.empty(shape, dtype=self.types[name], device=self.device.device)

    def _address(self, name: str, value: Tensor) -> tuple[str, int, int, list[int], int]:
        # the arguments of a binding: device and its number, ONNX type, shape, address
        device = value.device
        return device.type, device.index or 0, self.elements[name], list(value.shape), value.data_ptr()


class OrtDevice:
    """A device on which sessions run. On CUDA they have their own stream, because ONNX Runtime can't use the
    default one; it waits for torch's stream, and torch's waits for it."""

    def __init__(self, device: str) -> None:
        """Open a device. Raises ConfigError if this machine or this ONNX Runtime does not support it."""
        self.device = torch.device(device)
        self.providers: list[Any] = ["CPUExecutionProvider"]
        self.stream: torch.cuda.Stream | None = None
        if self.device.type == "cpu":
            return
        if PROVIDER not in ort.get_available_providers():
            raise ConfigError(f"this ONNX Runtime has no CUDA provider; run: {INSTALL_HINT}")
        if not torch.cuda.is_available():
            raise ConfigError(
                "no CUDA device: use --device cpu, or install NVIDIA's driver and torch for CUDA"
            )
        self.device = torch.device("cuda", self.device.index or 0)
        self.stream = torch.cuda.Stream(self.device)
        options = {
            "device_id": str(self.device.index),
            "user_compute_stream": str(self.stream.cuda_stream),
            "use_tf32": "0",  # fp32 means fp32: TF32 has 10 bits of mantissa
        }
        self.providers.insert(0, (PROVIDER, options))

    def bind(self, session: ort.InferenceSession) -> BoundSession:
        """Return a session on this device. Raises ConfigError if ONNX Runtime could not load its CUDA
        provider."""
        if self.stream is not None and PROVIDER not in session.get_providers():
            raise ConfigError(
                "ONNX Runtime could not load its CUDA provider (its own message is above): install builds of "
                "ONNX Runtime and torch for the same major version of CUDA, or use "
                f"--backend cuda --device {self.device}"
            )
        return BoundSession(session, self)

    def run(self, session: ort.InferenceSession, binding: ort.IOBinding, options: ort.RunOptions) -> None:
        """Run a session between the earlier and the later work of torch's current stream.

        session: session to run.
        binding: inputs and outputs of the run.
        options: options of the run.
        """
        if self.stream is None:
            session.run_with_iobinding(binding)
            return
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        session.run_with_iobinding(binding, options)
        current.wait_stream(self.stream)

    def arrays(self, step: BoundSession) -> Arrays:
        """Return device and dtype of the arrays of a lane with this step session."""
        types = {node.name: step.types[node.name] for node in step.get_inputs()}
        return Arrays(xp, self.device, lane_dtype(types, torch.float32))
