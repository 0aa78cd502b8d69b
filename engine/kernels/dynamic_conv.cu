// The dynamic or lightweight convolution of whole sequences, as the encoder needs it:
//   y[t][c] = sum_k kernel[t][head(c)][k] * x[t - left + k][c], zeros outside
// left: width - 1 (causal) or width / 2 (centred). Sequences of different lengths are zero beyond their ends.
// Reference: reference.dynamic_conv.
//
// Grid (chunks of channels, tiles of time, batch), block (channels / VECTOR of a chunk, some steps of a tile).
// A tile's inputs and the width - 1 around them are read once, into shared memory [tile + width - 1, chunk].
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
    dynamic_conv(const Element* x,     // [batch, time, channels]
                 const Element* taps,  // [batch, time, heads, width] or
                                       // [heads, width]: fixed
                 int time, int channels, int heads, int width, int left, int fixed,
                 int softmax, int tile, Element* y) {
  CONVOY_SHARED(float, inputs);
  await_inputs();
  const int chunk = blockDim.x * VECTOR, begin = blockIdx.y * tile - left, rows = tile + width - 1;
  const int channel = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  const bool inside = channel < channels;
  const Index first = static_cast<Index>(blockIdx.z) * time;
  float* mine = inputs + threadIdx.x * VECTOR;
  for (int row = threadIdx.y; row < rows; row += blockDim.y) {
    const int t = begin + row;
    float value[VECTOR] = {};
    if (inside && t >= 0 && t < time) load(x + (first + t) * channels + channel, value);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) mine[row * chunk + i] = value[i];
  }
  __syncthreads();
  if (!inside) return;
  const int head = channel / (channels / heads);
  for (int step = threadIdx.y; step < tile; step += blockDim.y) {
    const int t = blockIdx.y * tile + step;
    if (t >= time) return;
    Taps kernel(taps + ((fixed ? 0 : (first + t) * heads) + head) * width, width, softmax != 0);
    float sum[VECTOR] = {};
    for (int k = 0; k < width; k++) {
      const float weight = kernel.next(k);
#pragma unroll
      for (int i = 0; i < VECTOR; i++) sum[i] += weight * mine[(step + k) * chunk + i];
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) sum[i] /= kernel.sum;
    store(sum, y + (first + t) * channels + channel);
  }
}
