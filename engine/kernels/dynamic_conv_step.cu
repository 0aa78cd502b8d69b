// One decoding step of the causal dynamic or lightweight convolution ("Pay Less Attention", sections 3 and 4):
//   y[c] = sum_k kernel[head(c)][k] * window[k][c]
// The window of a hypothesis is its newest input and the width - 1 before it, gathered from the ring through `index`; the
// ring is never reordered. Reference: reference.dynamic_conv_step.
//
// Grid (chunks of channels, slots), block (WARP vectors of channels, parts of the taps, some beams). One block computes all
// beams of a slot, so that all have read the oldest column before the newest inputs replace it. With few slots several
// threads load parts of the taps, because the step waits for memory; many slots have enough threads with one part. Indices
// are loaded together with the taps, so that there is one wait before the inputs. If taps are logits, a warp computes their
// exponentials once for each head of the chunk in shared memory.
#include "common.cuh"

constexpr int THREADS = 512;

struct Window {
  const Element* x;      // [slots, beams, channels]
  const Element* taps;   // [slots, beams, heads, width], or [heads, width] if fixed
  const Element* ring;   // [slots, width - 1, beams, channels]
  const Index* index;    // [slots, beams, width - 1]: rows of ring [slots * (width - 1) * beams, channels]
  int beams, channels, heads, width;
  bool fixed, softmax;
};

// All beams of a slot. room: VECTOR partial sums and a sum of weights for each thread; then, for each
// beam of the block, weights [heads of a chunk, width] with a softmax, and rows [width].
__device__ __forceinline__ void convolve(const Window& w, int channel, float* room, Element* y) {
  const int older = w.width - 1, parts = blockDim.y, size = VECTOR + 1, each = w.channels / w.heads;
  float* mine = room + ((threadIdx.z * parts + threadIdx.y) * WARP + threadIdx.x) * size;
  const int touched = min(WARP, (WARP * VECTOR - 1) / each + 2), lowest = blockIdx.x * WARP * VECTOR / each;
  float* weights_of_beam = room + (blockDim.z * parts * WARP * size) + threadIdx.z * (touched + 1) * w.width;
  int* rows = reinterpret_cast<int*>(weights_of_beam + touched * w.width);
  for (int first = 0; first < w.beams; first += blockDim.z) {
    const int beam = first + threadIdx.z;
    const bool here = beam < w.beams && channel < w.channels;
    const Index row = static_cast<Index>(blockIdx.y) * w.beams + beam;
    const Element* taps = w.taps + (w.fixed ? 0 : row * w.heads) * w.width;
    for (int k = threadIdx.y * WARP + threadIdx.x; k < older && beam < w.beams; k += parts * WARP)
      rows[k] = static_cast<int>(w.index[row * older + k]);
    if (w.softmax)
      for (int head = threadIdx.y; head < touched && beam < w.beams && lowest + head < w.heads; head += parts) {
        const Element* of = taps + (lowest + head) * w.width;
        float top = LOWEST;
        for (int k = threadIdx.x; k < w.width; k += WARP) top = fmaxf(top, widen(of[k]));
        top = warp_max(top);
        for (int k = threadIdx.x; k < w.width; k += WARP)
          weights_of_beam[head * w.width + k] = expf(widen(of[k]) - top);
      }
    __syncthreads();
    if (here) {
      const int head = channel / each;
      const float* weights = weights_of_beam + (head - lowest) * w.width;
      float sum[VECTOR] = {}, whole = 0;
#pragma unroll 8
      for (int k = threadIdx.y; k < w.width; k += parts) {
        float x[VECTOR];
        const Element* from = k < older ? w.ring + static_cast<Index>(rows[k]) * w.channels : w.x + row * w.channels;
        load(from + channel, x);
        const float weight = w.softmax ? weights[k] : widen(taps[head * w.width + k]);
        whole += weight;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sum[i] = fmaf(weight, x[i], sum[i]);
      }
#pragma unroll
      for (int i = 0; i < VECTOR; i++) mine[i] = sum[i];
      mine[VECTOR] = whole;
    }
    __syncthreads();
    if (here && threadIdx.y == 0) {
      float sum[VECTOR] = {}, weights = 0;
      for (int part = 0; part < parts; part++) {
        const float* other = mine + part * WARP * size;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sum[i] += other[i];
        weights += other[VECTOR];
      }
      if (w.softmax)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sum[i] /= weights;
      store(sum, y + row * w.channels + channel);
    }
    __syncthreads();  // before room is reused
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    dynamic_conv_step(const Element* x, const Element* taps, const Element* ring, const Index* index, int beams,
                      int channels, int heads, int width, int fixed, int softmax, Element* y) {
  CONVOY_SHARED(float, room);
  await_inputs();
  const int channel = (blockIdx.x * WARP + threadIdx.x) * VECTOR;
  convolve({x, taps, ring, index, beams, channels, heads, width, fixed != 0, softmax != 0}, channel, room, y);
}

// The same, and the newest inputs replace column clock % (width - 1) of the ring. clock [1] is on the device, so that
// a captured graph reads its current value.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    dynamic_conv_step_append(const Element* x, const Element* taps, const Index* index, const Index* clock, int beams,
                             int channels, int heads, int width, int fixed, int softmax, Element* ring, Element* y) {
  CONVOY_SHARED(float, room);
  await_inputs();
  const int channel = (blockIdx.x * WARP + threadIdx.x) * VECTOR;
  const Index slot = blockIdx.y;
  convolve({x, taps, ring, index, beams, channels, heads, width, fixed != 0, softmax != 0}, channel, room, y);
  if (channel >= channels || width == 1 || threadIdx.y != 0) return;
  const Index column = slot * (width - 1) + *clock % (width - 1);
  for (int beam = threadIdx.z; beam < beams; beam += blockDim.z) {
    float value[VECTOR];
    load(x + (slot * beams + beam) * channels + channel, value);
    store(value, ring + (column * beams + beam) * channels + channel);
  }
}
