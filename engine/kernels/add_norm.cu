// Residual connection and layer norm: sum = x + residual, y = norm(sum) * gain + bias, divided by the slot's temperature.
//
// Grid (rows), block of whole warps. A row stays in shared memory [dim], so that it is read once. Mean and variance take a
// pass each, which is exact even if the mean is far from zero.
//
// Its inputs come from the cache, so memory is idle. The kernel uses that time to prefetch what a kernel soon after it reads:
// keys and values of attention, or the windows of a convolution step.
#include "common.cuh"

constexpr int SECTOR = 32;   // bytes of a memory transaction
constexpr int SIBLINGS = 3;  // number of earlier beams whose prefetches are known

// Keys [slots, heads, width, pitch] and values [slots, heads, pitch, width] of the first slots; `source` positions are used.
struct Remembered {
  const unsigned char *keys, *values;
  int blocks, width, source, pitch;  // blocks: slots * heads; 0: no prefetch
};

__device__ __forceinline__ void fetch_ahead(const Remembered& memory) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int EACH = static_cast<int>(sizeof(Element));
  const int across = (memory.source * EACH + SECTOR - 1) / SECTOR, step = static_cast<int>(blockDim.x);
  const int pieces = (memory.source * memory.width * EACH + SECTOR - 1) / SECTOR;
  for (int block = blockIdx.x; block < memory.blocks; block += static_cast<int>(gridDim.x)) {
    const Index begin = static_cast<Index>(block) * memory.width * memory.pitch * EACH;
    for (int at = threadIdx.x; at < memory.width * across; at += step)
      prefetch(memory.keys + begin + static_cast<Index>(at / across) * memory.pitch * EACH + at % across * SECTOR);
    for (int at = threadIdx.x; at < pieces; at += step) prefetch(memory.values + begin + at * SECTOR);
  }
#else
  (void)memory;
#endif
}

// Rows of a ring [slots * (width - 1) * beams, channels] that the first hypotheses read.
struct Windows {
  const unsigned char* ring;
  const Index* index;               // [slots, beams, width - 1]
  int hypotheses, older, row_size;  // older: width - 1; row_size: bytes of a row; hypotheses 0: no prefetch
};

// The window of a block's hypothesis: each of the first threads prefetches a row. Beams share most ancestors, so rows that an
// earlier beam prefetches are skipped. Indices are loaded together with the norm's row and used after it.
struct Window {
  int row = 0, asked[SIBLINGS] = {};
  bool wanted = false;

  __device__ __forceinline__ Window(const Windows& of, int beams) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    const int hypothesis = blockIdx.x, beam = hypothesis % beams, column = threadIdx.x;
    wanted = hypothesis < of.hypotheses && column < of.older;
    if (!wanted) return;
    const Index* at = of.index + static_cast<Index>(hypothesis) * of.older + column;
    row = static_cast<int>(*at);
#pragma unroll
    for (int i = 0; i < SIBLINGS; i++)
      asked[i] = i < beam ? static_cast<int>(*(at - static_cast<Index>(i + 1) * of.older)) : -1;
#endif
  }

  __device__ __forceinline__ void fetch(const Windows& of) const {
    bool first = wanted;
#pragma unroll
    for (int i = 0; i < SIBLINGS; i++) first = first && asked[i] != row;
    if (first) prefetch_bulk(of.ring + static_cast<Index>(row) * of.row_size, of.row_size);
  }
};

extern "C" __global__ void __launch_bounds__(256, 1)
    add_norm(const Element* x,         // [rows, dim]
             const Element* residual,  // [rows, dim], or null
             const Element* gain,      // [dim]
             const Element* bias,      // [dim]
             const float* heat,        // [rows / beams], or null
             int dim, int beams, float epsilon, const unsigned char* keys, const unsigned char* values, int blocks,
             int width, int source, int pitch,  // fields of `Remembered`
             const unsigned char* ring, const Index* index, int hypotheses, int older, int row_size,  // fields of `Windows`
             Element* sum,  // [rows, dim], or null
             Element* y) {  // [rows, dim]
  CONVOY_SHARED(float, row);
  __shared__ float room[WARP];
  const int first = threadIdx.x * VECTOR, step = blockDim.x * VECTOR;
  if (first < dim) {
    prefetch(gain + first);
    prefetch(bias + first);
  }
  fetch_ahead({keys, values, blocks, width, source, pitch});
  await_inputs();
  const Windows windows{ring, index, hypotheses, older, row_size};
  const Window window(windows, beams);
  const float hot = heat != nullptr ? heat[blockIdx.x / beams] : 1.0f;
  const Index begin = static_cast<Index>(blockIdx.x) * dim;
  float total = 0, up[VECTOR] = {}, more[VECTOR] = {};  // first vector of the thread, loaded together with the row
  if (first < dim) {
    load(gain + first, up);
    load(bias + first, more);
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
  window.fetch(windows);
  const float mean = block_sum(total, room) / static_cast<float>(dim);
  float squares = 0;
  for (int at = first; at < dim; at += step)
#pragma unroll
    for (int i = 0; i < VECTOR; i++) squares += (row[at + i] - mean) * (row[at + i] - mean);
  const float scale = rsqrtf(block_sum(squares, room) / static_cast<float>(dim) + epsilon);
  for (int at = first; at < dim; at += step) {
    if (at != first) {
      load(gain + at, up);
      load(bias + at, more);
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
      up[i] = (row[at + i] - mean) * scale * up[i] + more[i];
      if (heat != nullptr) up[i] /= hot;
    }
    store(up, y + begin + at);
  }
}
