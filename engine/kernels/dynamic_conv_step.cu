// One decoding step of the causal dynamic or lightweight convolution ("Pay Less Attention", sections 3 and 4):
//   y[c] = sum_k kernel[head(c)][k] * window[k][c]
// The window of a hypothesis is its newest input and the width - 1 before it, which are gathered from the ring
// through `index`: beams are followed, nothing is reordered. Reference: reference.dynamic_conv_step.
//
// Grid (chunks of channels, slots), block (channels / VECTOR of a chunk, beams). One block has all beams of a
// slot, so that the column which the newest inputs replace, the oldest, is read by all of them before.
#include "common.cuh"

struct Window {
  const Element* x;      // [slots, beams, channels], or [slots, beams, 2 * channels] before a GLU
  const Element* taps;   // [slots, beams, heads, width], or [heads, width] when they are the same at each step
  const Element* ring;   // [slots, width - 1, beams, channels]
  const Index* index;    // [slots, beams, width - 1]: rows of ring [slots * (width - 1) * beams, channels]
  int beams, channels, heads, width;
  bool fixed, softmax, glu;
};

// The newest input under tap width - 1
__device__ __forceinline__ void newest(const Window& w, Index row, int channel, float (&x)[VECTOR]) {
  if (!w.glu) return load(w.x + row * w.channels + channel, x);
  float gate[VECTOR];
  const Element* at = w.x + row * 2 * w.channels + channel;
  load(at, x);
  load(at + w.channels, gate);
#pragma unroll
  for (int i = 0; i < VECTOR; i++) x[i] = stored(x[i] / (1.0f + expf(-gate[i])));
}

__device__ __forceinline__ void convolve(const Window& w, Index row, int channel, Element* y) {
  const int head = channel / (w.channels / w.heads), older = w.width - 1;
  Taps kernel(w.taps + ((w.fixed ? 0 : row * w.heads) + head) * w.width, w.width, w.softmax);
  float sum[VECTOR] = {}, x[VECTOR];
#pragma unroll 4
  for (int k = 0; k < older; k++) {
    load(w.ring + w.index[row * older + k] * w.channels + channel, x);
    const float weight = kernel.next(k);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) sum[i] += weight * x[i];
  }
  newest(w, row, channel, x);
  const float weight = kernel.next(older);
#pragma unroll
  for (int i = 0; i < VECTOR; i++) sum[i] = (sum[i] + weight * x[i]) / kernel.sum;
  store(sum, y + row * w.channels + channel);
}

extern "C" __global__ void dynamic_conv_step(const Element* x, const Element* taps, const Element* ring,
                                             const Index* index, int beams, int channels, int heads, int width,
                                             int fixed, int softmax, Element* y) {
  const Window w{x, taps, ring, index, beams, channels, heads, width, fixed != 0, softmax != 0, false};
  const int channel = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (channel >= channels) return;
  for (int beam = threadIdx.y; beam < beams; beam += blockDim.y)
    convolve(w, static_cast<Index>(blockIdx.y) * beams + beam, channel, y);
}

// The same, and the newest inputs (after the GLU where there is one) become the ring's column clock % (width - 1).
// clock [1] lies on the device, so that a captured graph finds it there at each step.
extern "C" __global__ void dynamic_conv_step_append(const Element* x, const Element* taps, const Index* index,
                                                    const Index* clock, int beams, int channels, int heads,
                                                    int width, int fixed, int softmax, int glu, Element* ring,
                                                    Element* y) {
  const Window w{x, taps, ring, index, beams, channels, heads, width, fixed != 0, softmax != 0, glu != 0};
  const int channel = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  const Index slot = blockIdx.y;
  if (channel < channels)
    for (int beam = threadIdx.y; beam < beams; beam += blockDim.y) convolve(w, slot * beams + beam, channel, y);
  __syncthreads();
  if (channel >= channels || width == 1) return;
  const Index column = slot * (width - 1) + *clock % (width - 1);
  for (int beam = threadIdx.y; beam < beams; beam += blockDim.y) {
    float value[VECTOR];
    newest(w, slot * beams + beam, channel, value);
    store(value, ring + (column * beams + beam) * channels + channel);
  }
}
