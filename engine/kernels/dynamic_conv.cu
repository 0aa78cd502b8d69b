// The dynamic or lightweight convolution of whole sequences, for the encoder:
//   y[t][c] = sum_k kernel[t][head(c)][k] * x[t - left + k][c], zeros outside
// left: width - 1 (causal) or width / 2 (centred). Sequences are rows of a batch, zero beyond their ends, or packed one after
// another; then only inputs within the bounds of a sequence are read, and the order of sums is the same.
// Reference: reference.dynamic_conv.
//
// Grid (chunks of channels, tiles of time, batch), block (channels / VECTOR of a chunk, some steps of a tile).
// A tile's inputs and the width - 1 around them are read once, into shared memory [tile + width - 1, chunk].
#include "common.cuh"

struct Sequences {
  const Element* x;     // [batch, time, channels]
  const Element* taps;  // [batch, time, heads, width], or [heads, width] if fixed
  int time, channels, heads, width, left;
  bool fixed, softmax;
  int tile;
};

// bounds(t): first position of t's sequence, and the one after its last
template <typename Bounds>
__device__ __forceinline__ void convolve(const Sequences& s, Bounds bounds, float* inputs, Element* y) {
  const int chunk = blockDim.x * VECTOR, begin = blockIdx.y * s.tile - s.left, rows = s.tile + s.width - 1;
  const int channel = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  const bool inside = channel < s.channels;
  const Index first = static_cast<Index>(blockIdx.z) * s.time;
  float* mine = inputs + threadIdx.x * VECTOR;
  for (int row = threadIdx.y; row < rows; row += blockDim.y) {
    const int t = begin + row;
    float value[VECTOR] = {};
    if (inside && t >= 0 && t < s.time) load(s.x + (first + t) * s.channels + channel, value);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) mine[row * chunk + i] = value[i];
  }
  __syncthreads();
  if (!inside) return;
  const int head = channel / (s.channels / s.heads);
  for (int step = threadIdx.y; step < s.tile; step += blockDim.y) {
    const int t = blockIdx.y * s.tile + step;
    if (t >= s.time) return;
    const Bounded own = bounds(t);
    Taps kernel(s.taps + ((s.fixed ? 0 : (first + t) * s.heads) + head) * s.width, s.width, s.softmax);
    float sum[VECTOR] = {};
    for (int k = 0; k < s.width; k++) {
      const float weight = kernel.next(k);
      if (t - s.left + k < own.begin || t - s.left + k >= own.end) continue;
#pragma unroll
      for (int i = 0; i < VECTOR; i++) sum[i] = fmaf(weight, mine[(step + k) * chunk + i], sum[i]);
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) sum[i] /= kernel.sum;
    store(sum, y + (first + t) * s.channels + channel);
  }
}

extern "C" __global__ void __launch_bounds__(256, 1)
    dynamic_conv(const Element* x, const Element* taps, int time, int channels, int heads, int width, int left,
                 int fixed, int softmax, int tile, Element* y) {
  CONVOY_SHARED(float, inputs);
  await_inputs();
  convolve({x, taps, time, channels, heads, width, left, fixed != 0, softmax != 0, tile},
           [&](int) { return Bounded{0, time}; }, inputs, y);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    dynamic_conv_packed(const Element* x, const Element* taps, const Index* bounds, int time, int channels, int heads,
                        int width, int left, int fixed, int softmax, int tile, Element* y) {
  CONVOY_SHARED(float, inputs);
  await_inputs();
  convolve({x, taps, time, channels, heads, width, left, fixed != 0, softmax != 0, tile},
           [&](int t) { return bounds_of(bounds, t); }, inputs, y);
}
