// Cross-attention of a decoding step: the beams of a slot attend to the memory that they share.
//   weights = softmax(q . keys + mask), context = weights . values, for each head
// Reference: reference.attend.
//
// Grid (heads, groups of BEAMS beams, slots), block of WARPS warps. Keys and values are read once for a group. In both
// products warps divide the summed axis and lanes the columns of the result, for any length of the source. So the order of
// a sum depends only on the source's own tokens, and the context is bitwise independent of padding. Masked memory at the
// end is not read.
#include "common.cuh"

#ifndef CONVOY_BEAMS
#define CONVOY_BEAMS 8
#endif
constexpr int BEAMS = CONVOY_BEAMS, WARPS = 4, LANES = WARP * VECTOR;

// Softmax of row[0..count-1] in shared memory by one warp; a lane computes every WARP-th element.
__device__ __forceinline__ void softmax(float* row, int count) {
  const int lane = threadIdx.x % WARP;
  float top = LOWEST, sum = 0;
  for (int t = lane; t < count; t += WARP) top = fmaxf(top, row[t]);
  top = warp_max(top);
  for (int t = lane; t < count; t += WARP) {
    row[t] = expf(row[t] - top);
    sum += row[t];
  }
  sum = warp_sum(sum);
  for (int t = lane; t < count; t += WARP) row[t] /= sum;
}

// sums[beam][columns of the lane] over the warp's share of rows 0..rows-1 of right [rows, pitch], then over the
// warps; `finish` is called once for each sum. left [BEAMS, stride] and parts [WARPS, BEAMS, LANES] are shared memory.
template <typename Finish>
__device__ __forceinline__ void product(const float* left, int stride, const Element* right, int rows, int pitch,
                                        int until, float* parts, Finish finish) {
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  for (int begin = 0; begin < until; begin += LANES) {
    float sums[BEAMS][VECTOR] = {};
    const int column = begin + lane * VECTOR;
    if (column < until) {
#pragma unroll 4
      for (int row = warp; row < rows; row += WARPS) {
        float values[VECTOR];
        load(right + static_cast<Index>(row) * pitch + column, values);
#pragma unroll
        for (int beam = 0; beam < BEAMS; beam++)
#pragma unroll
          for (int i = 0; i < VECTOR; i++) sums[beam][i] = fmaf(left[beam * stride + row], values[i], sums[beam][i]);
      }
    }
#pragma unroll
    for (int beam = 0; beam < BEAMS; beam++)
#pragma unroll
      for (int i = 0; i < VECTOR; i++)
        parts[(warp * BEAMS + beam) * LANES + lane * VECTOR + i] = sums[beam][i];
    __syncthreads();
    for (int at = threadIdx.x; at < BEAMS * LANES; at += WARPS * WARP) {
      if (begin + at % LANES >= until) continue;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < WARPS; w++) sum += parts[w * BEAMS * LANES + at];
      finish(at / LANES, begin + at % LANES, sum);
    }
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(WARPS * WARP, 1)
    attend(const Element* q,       // [slots, beams, heads * width]
           const Element* keys,    // [slots, heads, width, pitch]
           const Element* values,  // [slots, heads, pitch, width]
           const float* mask,      // [slots, pitch], 0 or -inf
           // source: number of used positions, at most `pitch`
           int beams, int heads, int width, int source, int pitch, float scale,  // of q
           Element* context,       // as q
           float* weights) {       // [slots, heads, beams, source], or null
  CONVOY_SHARED(float, shared);
  await_inputs();
  float* logits = shared;                    // [BEAMS, source]
  float* queries = logits + BEAMS * source;  // [BEAMS, width]
  float* parts = queries + BEAMS * width;    // [WARPS, BEAMS, LANES]
  __shared__ int lengths[WARPS];
  const int head = blockIdx.x, first = blockIdx.y * BEAMS, slot = blockIdx.z;
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int group = min(BEAMS, beams - first);
  const Index block = static_cast<Index>(slot) * heads + head;
  const float* hidden = mask + static_cast<Index>(slot) * pitch;

  for (int at = threadIdx.x; at < BEAMS * width; at += WARPS * WARP) {
    const int beam = at / width;
    const Index row = static_cast<Index>(slot) * beams + first + beam;
    queries[at] = beam < group ? widen(q[(row * heads + head) * width + at % width]) * scale : 0.0f;
  }
  int length = 0;  // one past the last position that is not masked
  for (int t = threadIdx.x; t < source; t += WARPS * WARP)
    if (hidden[t] != LOWEST) length = t + 1;
  length = static_cast<int>(warp_max(static_cast<float>(length)));
  if (lane == 0) lengths[warp] = length;
  __syncthreads();
  for (int w = 0; w < WARPS; w++) length = max(length, lengths[w]);
  // in whole vectors; positions past the end are masked, those past the source skipped
  const int until = min((length + VECTOR - 1) / VECTOR * VECTOR, source);

  product(queries, width, keys + block * width * pitch, width, pitch, until, parts,
          [&](int beam, int t, float logit) { logits[beam * source + t] = logit + hidden[t]; });

  for (int beam = warp; beam < BEAMS; beam += WARPS) {
    float* row = logits + beam * source;
    softmax(row, until);
    if (weights == nullptr || beam >= group) continue;
    for (int t = lane; t < source; t += WARP)
      weights[(block * beams + first + beam) * source + t] = t < until ? row[t] : 0.0f;
  }
  __syncthreads();

  product(logits, source, values + block * pitch * width, until, width, width, parts,
          [&](int beam, int d, float sum) {
            const Index row = static_cast<Index>(slot) * beams + first + beam;
            if (beam < group) narrow(sum, context[(row * heads + head) * width + d]);
          });
}

// Self-attention of packed sequences (`GROUP` in common.cuh): each position attends
// to its own sequence. The order of a sum depends only on the sequence, so the context is bitwise independent
// of its neighbours. Reference: reference.attend_whole.
//
// Grid (heads, groups), block of WARPS warps, compiled for BEAMS = GROUP: positions of a group are treated like beams.
extern "C" __global__ void __launch_bounds__(WARPS * WARP, 1)
    attend_packed(const Element* q,  // [positions, heads * width]; so are
                  const Element* keys, const Element* values,
                  const Index* bounds,  // [groups, 2]
                  int heads, int width, int longest, float scale, Element* context) {
  static_assert(BEAMS <= GROUP);
  CONVOY_SHARED(float, shared);
  await_inputs();
  float* logits = shared;                     // [BEAMS, longest]
  float* queries = logits + BEAMS * longest;  // [BEAMS, width]
  float* parts = queries + BEAMS * width;     // [WARPS, BEAMS, LANES]
  const int head = blockIdx.x, first = blockIdx.y * GROUP, pitch = heads * width;
  const int warp = threadIdx.x / WARP;
  const Bounded own = bounds_of(bounds, first);
  const int length = min(own.end - own.begin, longest);
  const Index begin = static_cast<Index>(own.begin) * pitch + head * width;

  for (int at = threadIdx.x; at < BEAMS * width; at += WARPS * WARP)
    queries[at] = widen(q[static_cast<Index>(first + at / width) * pitch + head * width + at % width]) * scale;
  __syncthreads();
  for (int t = threadIdx.x; t < length; t += WARPS * WARP) {
    float sums[BEAMS] = {};
    for (int d = 0; d < width; d += VECTOR) {
      float key[VECTOR];
      load(keys + begin + static_cast<Index>(t) * pitch + d, key);
#pragma unroll
      for (int beam = 0; beam < BEAMS; beam++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sums[beam] = fmaf(queries[beam * width + d + i], key[i], sums[beam]);
    }
#pragma unroll
    for (int beam = 0; beam < BEAMS; beam++) logits[beam * longest + t] = sums[beam];
  }
  __syncthreads();
  for (int beam = warp; beam < BEAMS; beam += WARPS) softmax(logits + beam * longest, length);
  __syncthreads();
  product(logits, longest, values + begin, length, pitch, width, parts, [&](int beam, int d, float sum) {
    narrow(sum, context[static_cast<Index>(first + beam) * pitch + head * width + d]);
  });
}

// Mean over heads: weights [slots, heads, beams * source] to [slots, beams * source]. Grid (chunks, slots).
extern "C" __global__ void __launch_bounds__(128)
    mean_heads(const float* weights, int heads, int size, float* mean) {
  await_inputs();
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= size) return;
  const float* from = weights + static_cast<Index>(blockIdx.y) * heads * size + at;
  float sum = 0;
  for (int head = 0; head < heads; head++) sum += from[static_cast<Index>(head) * size];
  mean[static_cast<Index>(blockIdx.y) * size + at] = sum / static_cast<float>(heads);
}
