// The embeddings that a decoder reads: scaled rows of a table of tokens, plus rows of a table of positions.
// Grid (rows), block of any size.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
    embed(const Index* tokens,       // [rows]
          const Element* table,      // [vocab, dim]
          const Index* positions,    // [rows / beams]
          const Element* signals,    // [positions, dim], or null
          int beams, int dim, float scale, Element* y) {  // [rows, dim]
  await_inputs();
  const Index row = blockIdx.x;
  const Element* token = table + tokens[row] * dim;
  const Element* signal = signals == nullptr ? nullptr : signals + positions[row / beams] * dim;
  for (int at = threadIdx.x * VECTOR; at < dim; at += blockDim.x * VECTOR) {
    float value[VECTOR], more[VECTOR] = {};
    load(token + at, value);
    if (signal != nullptr) load(signal + at, more);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) value[i] = fmaf(value[i], scale, more[i]);
    store(value, y + row * dim + at);
  }
}
