// A decoding step of the dynamic convolution fused with the product that computes its taps, for up to 8 rows in bf16 or fp16:
// `tiled_product` followed by `dynamic_conv_step_append`. Taps are rounded to the element type before their softmax, as there.
//
// Grid (heads), block of 16 warps. A block computes the taps of a head for all rows, and prefetches their weight before it
// waits. Then half of the warps stage the rows, while the others follow the index and copy the windows into shared memory,
// which continues during the product. All beams of a slot are in one block, so that all have read the column that the
// newest inputs replace.
#include "tiled.cuh"

constexpr int WARPS = 16, THREADS = WARPS * WARP, HALF = THREADS / 2;
constexpr int MAX_TAPS = 64;  // taps of a head

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    dynamic_conv_tiled(const Element* x,       // [slots, beams, channels], a multiple of 8 for each head
                       const Element* weight,  // [heads * width, channels]
                       const Index* index,     // [slots, beams, width - 1]: rows of ring [..., channels]
                       const Index* clock,     // [1]
                       int rows, int beams, int channels, int heads, int width, int softmax,
                       Element* ring,  // [slots, width - 1, beams, channels]
                       Element* y) {   // [slots, beams, channels]
  CONVOY_SHARED(Element, inputs);  // [ROWS, channels + PAD]
  const int each = channels / heads, head = blockIdx.x, me = threadIdx.x, older = width - 1;
  Element* windows = inputs + ROWS * (channels + PAD);  // [ROWS, width, each], the newest last
  __shared__ HeadProduct<WARPS>::Parts parts;
  __shared__ float weights[ROWS][MAX_TAPS], whole[ROWS];
  const Inputs in{x, nullptr, nullptr, nullptr, rows, channels, beams, 0, 0.0f, nullptr};
  const HeadProduct<WARPS> product(weight + static_cast<Index>(head) * width * channels, width, channels);
  await_inputs();

  if (me < HALF) {
    Rows<HALF>::copy(in, inputs);
  } else {
    const int pieces = each / 8, columns = rows * width;
#pragma unroll 4
    for (int at = me - HALF; at < columns * pieces; at += HALF) {
      const int column = at / pieces, row = column / width, k = column % width;
      const Element* from = k < older ? ring + index[row * older + k] * channels : x + static_cast<Index>(row) * channels;
      copy_async(from + head * each + at % pieces * 8, windows + at * 8);
    }
  }
  const int column = static_cast<int>(*clock % older);
  __syncthreads();
  product.multiply(inputs, parts);

  // a warp for each row: its weights and their sum
  for (int row = me / WARP; row < rows; row += WARPS) {
    float tap[MAX_TAPS / WARP], top = LOWEST, sum = 0;
#pragma unroll
    for (int i = 0; i < MAX_TAPS / WARP; i++) {
      const int k = me % WARP + i * WARP;
      tap[i] = k < width ? stored(product.sum(parts, k, row)) : LOWEST;
      top = fmaxf(top, tap[i]);
    }
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < MAX_TAPS / WARP; i++) {
      const int k = me % WARP + i * WARP;
      if (softmax) tap[i] = expf(tap[i] - top);
      if (k >= width) continue;
      sum += tap[i];
      weights[row][k] = tap[i];
    }
    sum = warp_sum(sum);
    if (me % WARP == 0) whole[row] = softmax ? sum : 1.0f;
  }
  await_copies();
  __syncthreads();

  for (int at = me; at < rows * each; at += THREADS) {
    const int row = at / each, channel = at % each;
    const Element* window = windows + row * width * each + channel;
    float sum = 0;
#pragma unroll 8
    for (int k = 0; k < width; k++) sum = fmaf(weights[row][k], widen(window[k * each]), sum);
    narrow(sum / whole[row], y[static_cast<Index>(row) * channels + head * each + channel]);
  }
  for (int at = me; at < rows * each / 8; at += THREADS) {
    const int row = at / (each / 8), channel = at % (each / 8) * 8;
    const Words newest = *reinterpret_cast<const Words*>(windows + (row * width + older) * each + channel);
    const Index place = static_cast<Index>(row / beams * older + column) * beams + row % beams;
    *reinterpret_cast<Words*>(ring + place * channels + head * each + channel) = newest;
  }
}
