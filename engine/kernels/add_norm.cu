// Residual connection and layer or root-mean-square norm: sum = x + residual, y = norm(sum) * gain + bias, divided by the
// slot's temperature.
//
// Grid (rows), block of whole warps. A row stays in shared memory [dim], so that it is read once. Mean and variance take a
// pass each, which is exact even if the mean is far from zero.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
    add_norm(const Element* x,         // [rows, dim]
             const Element* residual,  // [rows, dim], or null
             const Element* gain,      // [dim]
             const Element* bias,      // [dim], or null: a root-mean-square norm
             const float* heat,        // [rows / beams], or null
             int dim, int beams, float epsilon,
             Element* sum,  // [rows, dim], or null
             Element* y) {  // [rows, dim]
  CONVOY_SHARED(float, row);
  __shared__ float room[WARP];
  const int first = threadIdx.x * VECTOR, step = blockDim.x * VECTOR;
  if (first < dim) {
    prefetch(gain + first);
    if (bias != nullptr) prefetch(bias + first);
  }
  await_inputs();
  const float hot = heat != nullptr ? heat[blockIdx.x / beams] : 1.0f;
  const Index begin = static_cast<Index>(blockIdx.x) * dim;
  float total = 0, up[VECTOR] = {}, more[VECTOR] = {};  // first vector of the thread, loaded together with the row
  if (first < dim) {
    load(gain + first, up);
    if (bias != nullptr) load(bias + first, more);
  }
  for (int at = first; at < dim; at += step) {
    float value[VECTOR], other[VECTOR] = {};
    load(x + begin + at, value);
    if (residual != nullptr) load(residual + begin + at, other);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
      value[i] += other[i];
      total += value[i];
      row[at + i] = value[i];  // read by the same thread, so no barrier is needed
    }
    if (sum != nullptr) store(value, sum + begin + at);
  }
  const float mean = bias != nullptr ? block_sum(total, room) / static_cast<float>(dim) : 0.0f;
  float squares = 0;
  for (int at = first; at < dim; at += step)
#pragma unroll
    for (int i = 0; i < VECTOR; i++) squares = fmaf(row[at + i] - mean, row[at + i] - mean, squares);
  const float scale = rsqrtf(block_sum(squares, room) / static_cast<float>(dim) + epsilon);
  for (int at = first; at < dim; at += step) {
    if (at != first) {
      load(gain + at, up);
      if (bias != nullptr) load(bias + at, more);
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
      up[i] = fmaf((row[at + i] - mean) * scale, up[i], more[i]);
      if (heat != nullptr) up[i] /= hot;
    }
    store(up, y + begin + at);
  }
}
