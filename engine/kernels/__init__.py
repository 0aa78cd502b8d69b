"""CUDA kernels (*.cu, compiled when first used) and their reference in torch.

reference   the same operators in plain torch: exported to graphs, and compared with in tests
calls       kernels as functions of tensors
linear      operations that are fused with a linear map
products    products of few rows
int8        weights of 8 bits
taps        steps of the dynamic convolution that compute their taps
caches      self-attention over caches
selection   the best tokens from logits
launches    a kernel and its launch, as data
fused       run the layers of a model with kernels
fused_products  products of few rows with the operators before and after them
modes       other modes for running a model
deferred    results that wait for the operators after them
nvrtc       the compiler
prebuilt    kernels of usual models, compiled before their first launch
launch      the driver
trt_plugin  the convolution kernels as TensorRT plugins
"""
