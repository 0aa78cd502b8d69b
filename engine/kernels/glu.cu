// Gated linear unit of many rows (Dauphin et al. 2017): y = value * sigmoid(gate), the two halves of a row.
// Reference: torch's glu. For few rows the product applies the gate.
//
// Grid (rows), block of whole warps.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
    glu(const Element* x,  // [rows, 2 * dim]
        int dim,
        Element* y) {  // [rows, dim]
  await_inputs();
  const Element* row = x + static_cast<Index>(blockIdx.x) * 2 * dim;
  for (int at = threadIdx.x * VECTOR; at < dim; at += blockDim.x * VECTOR) {
    float value[VECTOR], gate[VECTOR];
    load(row + at, value);
    load(row + dim + at, gate);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) value[i] = gated(value[i], gate[i]);
    store(value, y + static_cast<Index>(blockIdx.x) * dim + at);
  }
}
