// Self-attention of a decoding step over caches: a hypothesis attends to its new position and to all earlier ones.
//   weights = softmax(scale * q . keys + bias), context = weights . values, for each head
// `writers` names the beam that wrote each column of a hypothesis, so caches are never reordered. The kernel also appends
// the new key and value. Reference: reference.attend_cached.
//
// Grid (heads, groups of beams, slots), block of a warp for each beam of the group and each of `splits` shares of the
// columns. Beams read the same columns at the same time, so entries that they share are read from memory once. LANES lanes
// load an entry, 16 bytes each, and GROUPS groups of lanes load one column each, AHEAD at a time. Every group keeps its own
// maximum, sum and context (online softmax), so no length needs more shared memory. The order of a sum depends only on the
// position and the number of beams.
#include "common.cuh"

#ifndef CONVOY_WIDTH
#define CONVOY_WIDTH 64
#endif
constexpr int WIDTH = CONVOY_WIDTH, VECTORS = WIDTH / VECTOR, WARPS = 16;
__device__ constexpr int lanes_of(int vectors) {  // a power of two, so that lanes exchange their sums by shuffles
  int lanes = 1;
  while (lanes < vectors && lanes < WARP) lanes *= 2;
  return lanes;
}
constexpr int LANES = lanes_of(VECTORS), GROUPS = WARP / LANES, CHUNKS = (VECTORS + LANES - 1) / LANES;
constexpr int AHEAD = CHUNKS == 1 ? 4 : CHUNKS == 2 ? 2 : 1;  // columns of a group at once, limited by registers
static_assert(WIDTH % VECTOR == 0);

// The lane's part of a vector [WIDTH], as it is stored
struct Stored {
  Pack at[CHUNKS] = {};

  static __device__ __forceinline__ int vector(int chunk) { return chunk * LANES + threadIdx.x % LANES; }
  static __device__ __forceinline__ bool has(int chunk) { return VECTORS % LANES == 0 || vector(chunk) < VECTORS; }

  __device__ __forceinline__ void read(const Element* from) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
      if (has(chunk)) at[chunk] = *reinterpret_cast<const Pack*>(from + vector(chunk) * VECTOR);
  }

  __device__ __forceinline__ void write(Element* to) const {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
      if (has(chunk)) *reinterpret_cast<Pack*>(to + vector(chunk) * VECTOR) = at[chunk];
  }

  // sum over the lanes of a group, for all of them
  __device__ __forceinline__ float dot(const Stored& other) const {
    float sum = 0;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
      for (int i = 0; i < VECTOR; i++) sum = fmaf(widen(at[chunk].at[i]), widen(other.at[chunk].at[i]), sum);
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    return sum;
  }
};

// exp(x - top); 0 for a maximum of no logits
__device__ __forceinline__ float weight_of(float x, float top) { return x == LOWEST ? 0.0f : expf(x - top); }

// A softmax over the logits so far, and the values in these weights
struct Context {
  float top = LOWEST, sum = 0, values[CHUNKS][VECTOR] = {};

  __device__ __forceinline__ void scale(float factor) {
    sum *= factor;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
      for (int i = 0; i < VECTOR; i++) values[chunk][i] *= factor;
  }

  __device__ __forceinline__ void add(float weight, const Stored& value) {
    sum += weight;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
      for (int i = 0; i < VECTOR; i++) values[chunk][i] = fmaf(weight, widen(value.at[chunk].at[i]), values[chunk][i]);
  }

  // to [WIDTH + 2]: values, maximum and sum, by the lanes of a group
  __device__ __forceinline__ void write(float* to) const {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
      if (Stored::has(chunk))
#pragma unroll
        for (int i = 0; i < VECTOR; i++) to[Stored::vector(chunk) * VECTOR + i] = values[chunk][i];
    to[WIDTH] = top;
    to[WIDTH + 1] = sum;
  }

  // the same of all groups of the warp, for the first group
  __device__ __forceinline__ void merge_groups() {
#pragma unroll
    for (int step = LANES; step < WARP; step *= 2) {
      const float other = __shfl_xor_sync(ALL, top, step), both = fmaxf(top, other);
      const float mine = weight_of(top, both), theirs = weight_of(other, both);
      top = both;
      sum = sum * mine + __shfl_xor_sync(ALL, sum, step) * theirs;
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
          float& one = values[chunk][i];
          one = one * mine + __shfl_xor_sync(ALL, one, step) * theirs;
        }
    }
  }
};

extern "C" __global__ void __launch_bounds__(WARPS * WARP, 1)
    attend_cached(const Element* q,          // [slots, beams, heads * WIDTH]; so are
                  const Element* key, const Element* value,  // of the new position
                  const Index* writers,      // [slots, beams, pitch]
                  const Index* positions,    // [slots]: column of the new position
                  const Element* bias,       // of earlier positions [slots, heads, columns * beams], or null
                  const Element* own_bias,   // of the new position [slots, heads], or null
                  // columns: number of columns that may be read; pitch: number of columns of the caches
                  int beams, int heads, int columns, int pitch, int splits, float scale,  // of q
                  Element* keys, Element* values,  // caches [slots, heads, pitch, beams, WIDTH]
                  Element* context) {              // as q
  CONVOY_SHARED(float, shared);  // [warps, WIDTH + 2]: context, maximum and sum of each warp
  await_inputs();
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, group = lane / LANES;
  const int at_once = static_cast<int>(blockDim.x) / WARP / splits, share = warp % splits;
  const int head = blockIdx.x, beam = static_cast<int>(blockIdx.y) * at_once + warp / splits;
  const Index slot = blockIdx.z, block = slot * heads + head;
  const bool here = beam < beams;  // the same for a whole warp
  const Index row = slot * beams + (here ? beam : 0), own = (row * heads + head) * WIDTH;
  const Index cache = block * pitch * beams * WIDTH;
  float* parts = shared + warp * (WIDTH + 2);

  if (here) {
    // the first writers are loaded before the position is known; those of later columns are not used
    const Index* line = writers + row * pitch;
    const int first = share * GROUPS + group, step = splits * GROUPS;
    int writer[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      const int column = first + i * step;
      writer[i] = column < columns ? static_cast<int>(line[column]) : 0;
    }
    const int past = static_cast<int>(positions[slot]);
    Stored query, new_key, new_value;
    query.read(q + own);
    new_key.read(key + own);
    new_value.read(value + own);
    const float now = fmaf(query.dot(new_key), scale, own_bias != nullptr ? widen(own_bias[block]) : 0.0f);
    Context sums;
    if (share == 0 && group == 0) {
      sums.top = now;
      sums.add(1.0f, new_value);
      const Index entry = cache + (static_cast<Index>(past) * beams + beam) * WIDTH;
      new_key.write(keys + entry);
      new_value.write(values + entry);
    }
    for (int begin = 0; begin < past; begin += AHEAD * step) {
      Stored before[AHEAD], held[AHEAD];
      float logits[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        const int column = begin + first + i * step;
        logits[i] = 0;
        if (column >= past) continue;
        const Index entry = cache + (static_cast<Index>(column) * beams + writer[i]) * WIDTH;
        before[i].read(keys + entry);
        held[i].read(values + entry);
        if (bias != nullptr) logits[i] = widen(bias[(block * columns + column) * beams]);
      }
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {  // of the next columns, while the entries are loaded
        const int column = begin + first + (AHEAD + i) * step;
        writer[i] = column < columns ? static_cast<int>(line[column]) : 0;
      }
      float top = sums.top;
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        logits[i] = fmaf(query.dot(before[i]), scale, logits[i]);
        if (begin + first + i * step >= past) logits[i] = LOWEST;
        top = fmaxf(top, logits[i]);
      }
      sums.scale(weight_of(sums.top, top));
      sums.top = top;
#pragma unroll
      for (int i = 0; i < AHEAD; i++) sums.add(weight_of(logits[i], top), held[i]);
    }
    sums.merge_groups();
    if (group == 0) sums.write(parts);
  }
  __syncthreads();
  if (!here || share != 0) return;
  float top = LOWEST, sum = 0;  // of all shares, which are the next warps
  for (int i = 0; i < splits; i++) top = fmaxf(top, parts[i * (WIDTH + 2) + WIDTH]);
  for (int i = 0; i < splits; i++)
    sum = fmaf(parts[i * (WIDTH + 2) + WIDTH + 1], weight_of(parts[i * (WIDTH + 2) + WIDTH], top), sum);
  for (int vector = lane; vector < VECTORS; vector += WARP) {
    float whole[VECTOR] = {};
    for (int i = 0; i < splits; i++) {
      const float* part = parts + i * (WIDTH + 2);
      const float weight = weight_of(part[WIDTH], top);
#pragma unroll
      for (int j = 0; j < VECTOR; j++) whole[j] = fmaf(part[vector * VECTOR + j], weight, whole[j]);
    }
#pragma unroll
    for (int j = 0; j < VECTOR; j++) whole[j] /= sum;
    store(whole, context + own + vector * VECTOR);
  }
}
