// A matrix product of few rows, fused with the operations before and after it in a layer:
//   y = finish(W . prepare(x) + b)
// prepare: layer or root-mean-square norm, division by a row's temperature. finish: a factor, an activation, a residual
// connection.
// Reference: torch's linear, layer_norm, rms_norm and activations. Sums are float, and their order depends only on dim.
//
// The time is that of reading the weights, once, 16 bytes at a time. Grid (some blocks, each with every gridDim-th group of
// outputs), block of WARPS warps, of which `split` share the sum of a pair of outputs. The prepared rows are in shared
// memory [ROWS, dim]. The pair of a GLU is a value and its gate.
#include "common.cuh"

#ifndef CONVOY_ROWS
#define CONVOY_ROWS 1
#endif
constexpr int ROWS = CONVOY_ROWS, WARPS = 8, THREADS = WARPS * WARP;

// Load an Element or a float
__device__ __forceinline__ float read(const void* from, int wide, Index at) {
  return wide ? static_cast<const float*>(from)[at] : widen(static_cast<const Element*>(from)[at]);
}

// Sum of each row over the block, for all threads
__device__ __forceinline__ void sum_rows(float (&sums)[ROWS], float (&room)[ROWS][WARPS]) {
#pragma unroll
  for (int row = 0; row < ROWS; row++) {
    const float sum = warp_sum(sums[row]);
    if (threadIdx.x % WARP == 0) room[row][threadIdx.x / WARP] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int row = 0; row < ROWS; row++) {
    sums[row] = 0;
    for (int warp = 0; warp < WARPS; warp++) sums[row] += room[row][warp];
  }
  __syncthreads();  // before room is reused
}

struct Norm {
  const Element* gain;   // [dim], or null
  const Element* shift;  // [dim], or null: a root-mean-square norm
  float epsilon;
};

// inputs [ROWS, dim]: x [rows, dim], normalised and divided by the temperature. normed: output of the norm.
__device__ __forceinline__ void prepare(const void* x, int wide, int rows, int dim, const Norm& norm,
                                        const float* heat, int beams, Element* normed, Element* inputs) {
  __shared__ float room[ROWS][WARPS];
  float mean[ROWS] = {}, scale[ROWS] = {};
  if (norm.gain != nullptr) {
    for (int at = threadIdx.x; at < dim; at += THREADS)
#pragma unroll
      for (int row = 0; row < ROWS; row++)
        if (row < rows) mean[row] += read(x, wide, static_cast<Index>(row) * dim + at);
    sum_rows(mean, room);
#pragma unroll
    for (int row = 0; row < ROWS; row++) mean[row] = norm.shift != nullptr ? mean[row] / static_cast<float>(dim) : 0.0f;
    for (int at = threadIdx.x; at < dim; at += THREADS)
#pragma unroll
      for (int row = 0; row < ROWS; row++)
        if (row < rows) {
          const float off = read(x, wide, static_cast<Index>(row) * dim + at) - mean[row];
          scale[row] = fmaf(off, off, scale[row]);
        }
    sum_rows(scale, room);
#pragma unroll
    for (int row = 0; row < ROWS; row++)
      scale[row] = rsqrtf(scale[row] / static_cast<float>(dim) + norm.epsilon);
  }
  for (int at = threadIdx.x; at < dim; at += THREADS)
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
      const Index place = static_cast<Index>(row) * dim + at;
      float value = row < rows ? read(x, wide, place) : 0.0f;
      if (norm.gain != nullptr)
        value = fmaf((value - mean[row]) * scale[row], widen(norm.gain[at]),
                     norm.shift != nullptr ? widen(norm.shift[at]) : 0.0f);
      if (normed != nullptr && blockIdx.x == 0 && row < rows) narrow(value, normed[place]);
      if (heat != nullptr && row < rows) value /= heat[row / beams];
      narrow(value, inputs[row * dim + at]);
    }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    product(const void* x,           // [rows, dim], float if wide_x
            const Element* weight,   // [outputs, dim]
            const Element* bias,     // [outputs], or null
            const void* residual,    // shape of y, float if wide_residual; or null
            const Element* gain, const Element* shift, const float* heat,  // heat: [rows / beams], or null
            int rows, int dim, int outputs, int split, int beams, int activation, int wide_x, int wide_residual,
            int wide_y, float epsilon, float factor,
            Element* normed,  // [rows, dim], or null
            void* y) {        // [rows, outputs], half as many after a GLU; float if wide_y
  CONVOY_SHARED(Element, inputs);  // [ROWS, dim]
  __shared__ float parts[WARPS][2][ROWS];
  const int me = threadIdx.x, warp = me / WARP, lane = me % WARP;
  const bool glu = activation == GLU;
  const int pairs = (outputs + 1) / 2, width = glu ? pairs : outputs, groups = WARPS / split;
  const int stride = split * WARP * VECTOR, begin = (warp % split * WARP + lane) * VECTOR;

  const int ahead = blockIdx.x * groups + warp / split;
  if (ahead < pairs)
    for (int k = begin; k < dim; k += stride) {
      prefetch(weight + static_cast<Index>(glu ? ahead : 2 * ahead) * dim + k);
      prefetch(weight + static_cast<Index>(glu ? ahead + pairs : min(2 * ahead + 1, outputs - 1)) * dim + k);
    }
  await_inputs();
  prepare(x, wide_x, rows, dim, {gain, shift, epsilon}, heat, beams, normed, inputs);

  for (int base = blockIdx.x * groups; base < pairs; base += gridDim.x * groups) {
    const int pair = base + warp / split;
    float sums[2][ROWS] = {};
    if (pair < pairs) {
      const Element* left = weight + static_cast<Index>(glu ? pair : 2 * pair) * dim;
      const Element* right = weight + static_cast<Index>(glu ? pair + pairs : min(2 * pair + 1, outputs - 1)) * dim;
#pragma unroll 4
      for (int k = begin; k < dim; k += stride) {
        float a[VECTOR], b[VECTOR];
        load(left + k, a);
        load(right + k, b);
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
          float value[VECTOR];
          load(inputs + row * dim + k, value);
#pragma unroll
          for (int i = 0; i < VECTOR; i++) {
            sums[0][row] = fmaf(a[i], value[i], sums[0][row]);
            sums[1][row] = fmaf(b[i], value[i], sums[1][row]);
          }
        }
      }
    }
#pragma unroll
    for (int side = 0; side < 2; side++)
#pragma unroll
      for (int row = 0; row < ROWS; row++) {
        const float sum = warp_sum(sums[side][row]);
        if (lane == 0) parts[warp][side][row] = sum;
      }
    __syncthreads();
    const int row = me % ROWS, mine = base + me / ROWS;
    if (me < groups * ROWS && row < rows && mine < pairs) {
      float value[2];
#pragma unroll
      for (int side = 0; side < 2; side++) {
        const int output = glu ? mine + side * pairs : 2 * mine + side;
        float sum = 0;
        for (int part = 0; part < split; part++) sum += parts[me / ROWS * split + part][side][row];
        if (bias != nullptr && output < outputs) sum += widen(bias[output]);
        sum *= factor;
        value[side] = activated(sum, activation);
      }
      if (glu) value[0] = gated(value[0], value[1]);
      for (int side = 0; side < (glu ? 1 : 2); side++) {
        const int output = glu ? mine : 2 * mine + side;
        if (output >= outputs) continue;
        const Index at = static_cast<Index>(row) * width + output;
        if (residual != nullptr) value[side] += read(residual, wide_residual, at);
        if (wide_y) {
          static_cast<float*>(y)[at] = value[side];
        } else {
          narrow(value[side], static_cast<Element*>(y)[at]);
        }
      }
    }
    __syncthreads();  // before parts is reused
  }
}
