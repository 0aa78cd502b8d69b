"""Kernels for GPUs (CUDA C++, compiled when first used), and their reference in torch. See *.cu.

reference   the same in plain torch: what exporters trace and tests compare with
calls       kernels as functions of tensors
ahead       what they ask memory for before others read it
linear      what comes before and after a linear map
products    products of few rows
heads       those whose outputs are used by the same kernel, head by head
selection   logits to the best tokens
launches    a kernel and one launch of it, as data
fused       a model's layers that use them
modes       other modes that a model runs under
deferred    products that wait for what follows
nvrtc       the compiler
launch      the driver
trt_plugin  the same kernels as TensorRT's plugins
"""
