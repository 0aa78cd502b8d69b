// Cross-attention of a decoding step by tensor cores in bf16 or fp16, for up to 8 beams of a slot without returned weights.
// Weights are rounded to the element type before the product with values.
//
// Grid (heads, groups of 8 beams, slots), block of one warp, or of several that take the tiles of a long source in turn, each
// with a running maximum and sum; the first warp merges them. A masked tile changes nothing, so the context is bitwise
// independent of padding, and masked vectors are not read. Beams are the rows of an mma. A lane loads 16 bytes, 8 neighbours of a row of keys; with those
// of neighbouring rows they are its fragments of 8 mma whose columns are 8 apart: position 8 * g + i is column g of the mma
// i, so lanes exchange nothing. Logits are then in the layout of the left side of the product with values, 16 neighbouring
// positions of a beam in a lane; so is the context.
#include "tiled.cuh"

constexpr int POSITIONS = 64, BEAMS = 8, MAX_WIDTH = 64;  // positions of a tile; width of a head: a multiple of 16
constexpr int WARPS = 8;                                   // at most
constexpr int PARTS = 18;                                  // what a lane leaves to the first warp: sums, maximum, total

// Elements i of two neighbouring rows in one register.
__device__ __forceinline__ void pair(const Words& upper, const Words& lower, unsigned (&pairs)[8]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    pairs[2 * i] = (upper.at[i] & 0xffffu) | lower.at[i] << 16;
    pairs[2 * i + 1] = upper.at[i] >> 16 | (lower.at[i] & 0xffff0000u);
  }
}

// Eight neighbours, or zeros.
__device__ __forceinline__ Words eight(const Element* from, bool wanted) {
  return wanted ? *reinterpret_cast<const Words*>(from) : Words{};
}

// Mask of four positions
__device__ __forceinline__ Floats four(const float* mask, bool there) {
  return there ? *reinterpret_cast<const Floats*>(mask) : Floats{{LOWEST, LOWEST, LOWEST, LOWEST}};
}

// Whether any of four positions is not masked
__device__ __forceinline__ bool seen(const Floats& hidden) {
  return hidden.at[0] != LOWEST || hidden.at[1] != LOWEST || hidden.at[2] != LOWEST || hidden.at[3] != LOWEST;
}

extern "C" __global__ void __launch_bounds__(WARPS * WARP, 1)
    attend_tiled(const Element* q,       // [slots, beams, heads * width]
                 const Element* keys,    // [slots, heads, width, pitch]
                 const Element* values,  // [slots, heads, pitch, width]
                 const float* mask,      // [slots, pitch], 0 or -inf
                 int beams, int heads, int width, int source, int pitch, float scale,  // of q
                 Element* context) {     // as q
  await_inputs();
  CONVOY_SHARED(float, parts);  // [warps, PARTS, WARP], of several warps
  const int lane = threadIdx.x % WARP, group = lane / 4, quad = lane % 4;
  const int warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  const int head = blockIdx.x, beam = blockIdx.y * BEAMS + group, slot = blockIdx.z;
  const bool here = beam < beams;
  const Index block = (static_cast<Index>(slot) * heads + head) * width * pitch;
  const Index row = ((static_cast<Index>(slot) * beams + beam) * heads + head) * width;
  keys += block;
  values += block;
  mask += static_cast<Index>(slot) * pitch;

  unsigned query[MAX_WIDTH / 16][2];
#pragma unroll
  for (int chunk = 0; chunk < MAX_WIDTH / 16; chunk++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const bool there = here && chunk * 16 < width;
      const Element* from = q + row + chunk * 16 + half * 8 + quad * 2;
      query[chunk][half] = there ? *reinterpret_cast<const unsigned*>(from) : 0u;
    }

  float top = LOWEST, total = 0;
  float sums[8][4] = {};  // dimensions 16 * quad + i and + 8 of the beam
  for (int begin = warp * POSITIONS; begin < source; begin += warps * POSITIONS) {
    Floats hidden[4];  // mask of positions 16 * quad to 16 * quad + 15
    bool any = false;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int at = begin + quad * 16 + i * 4;
      hidden[i] = four(mask + at, at < source);
      any |= seen(hidden[i]);
    }
    const int own = begin + group * 8;
    const bool read = seen(four(mask + own, own < source)) ||
                      seen(four(mask + own + 4, own + 4 < source));
    if (warp_max(any ? 1.0f : 0.0f) == 0.0f) continue;  // the whole warp

    float logits[8][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < MAX_WIDTH / 16; chunk++) {
      const bool there = read && chunk * 16 < width;
      const Element* from = keys + static_cast<Index>(chunk * 16 + quad * 2) * pitch + own;
      unsigned low[8], high[8];
      pair(eight(from, there), eight(from + pitch, there), low);
      pair(eight(from + 8 * pitch, there), eight(from + 9 * pitch, there), high);
#pragma unroll
      for (int i = 0; i < 8; i++)
        mma<Element>(logits[i], query[chunk][0], 0u, query[chunk][1], 0u, low[i], high[i]);
    }

    float weights[16], highest = top;
#pragma unroll
    for (int i = 0; i < 16; i++) {
      weights[i] = fmaf(logits[i % 8][i / 8], scale, hidden[i / 4].at[i % 4]);
      highest = fmaxf(highest, weights[i]);
    }
    highest = fmaxf(highest, __shfl_xor_sync(ALL, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(ALL, highest, 2));
    const float factor = expf(top - highest);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) {
      weights[i] = expf(weights[i] - highest);
      sum += weights[i];
    }
    sum += __shfl_xor_sync(ALL, sum, 1);
    sum += __shfl_xor_sync(ALL, sum, 2);
    total = fmaf(total, factor, sum);
    top = highest;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
      for (int j = 0; j < 2; j++) sums[i][j] *= factor;

#pragma unroll
    for (int part = 0; part < 4; part++) {
      const bool there = seen(hidden[part]) && group * 8 < width;
      const Element* from = values + static_cast<Index>(begin + quad * 16 + part * 4) * width + group * 8;
      unsigned low[8], high[8];
      pair(eight(from, there), eight(from + width, there), low);
      pair(eight(from + 2 * width, there), eight(from + 3 * width, there), high);
      const unsigned left = packed(weights[part * 4], weights[part * 4 + 1]);
      const unsigned right = packed(weights[part * 4 + 2], weights[part * 4 + 3]);
#pragma unroll
      for (int i = 0; i < 8; i++) mma<Element>(sums[i], left, 0u, right, 0u, low[i], high[i]);
    }
  }
  if (warps > 1) {
    auto part = [&](int of, int i) -> float& { return parts[(of * PARTS + i) * WARP + lane]; };
#pragma unroll
    for (int i = 0; i < 16; i++) part(warp, i) = sums[i / 2][i % 2];
    part(warp, 16) = top;
    part(warp, 17) = total;
    __syncthreads();
    if (warp > 0) return;
    for (int other = 1; other < warps; other++) top = fmaxf(top, part(other, 16));
    total = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) sums[i / 2][i % 2] = 0;
    for (int each = 0; each < warps; each++) {  // a warp without tokens has the factor 0
      const float factor = expf(part(each, 16) - top);
      total = fmaf(part(each, 17), factor, total);
#pragma unroll
      for (int i = 0; i < 16; i++) sums[i / 2][i % 2] = fmaf(part(each, i), factor, sums[i / 2][i % 2]);
    }
  }
  if (!here || quad * 16 >= width) return;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    Words out;
#pragma unroll
    for (int i = 0; i < 4; i++) out.at[i] = packed(sums[2 * i][half] / total, sums[2 * i + 1][half] / total);
    *reinterpret_cast<Words*>(context + row + quad * 16 + half * 8) = out;
  }
}
