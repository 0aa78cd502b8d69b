// Weights of 8 bits with a scale for each row as elements, for products of many rows by a library: y = weight * scale.
// Grid (rows); a thread converts VECTOR neighbours at a time.
#include "common.cuh"

struct alignas(VECTOR) Bytes {
  signed char at[VECTOR];
};

extern "C" __global__ void __launch_bounds__(256)
    expand(const signed char* weight,  // [rows, dim]
           const float* scales,        // [rows]
           int dim,
           Element* y) {  // [rows, dim]
  await_inputs();  // an earlier product may still read y
  const Index row = blockIdx.x;
  const float scale = scales[row];
  for (int at = threadIdx.x * VECTOR; at < dim; at += blockDim.x * VECTOR) {
    const Bytes bytes = *reinterpret_cast<const Bytes*>(weight + row * dim + at);
    float value[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) value[i] = static_cast<float>(bytes.at[i]) * scale;
    store(value, y + row * dim + at);
  }
}
