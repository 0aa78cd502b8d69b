// A matrix product of 17 to 64 rows by tensor cores, with the operations after it: y = finish(W . x + b), in bf16 or fp16, if
// dim is a multiple of 32 and addresses are multiples of 16 bytes. Sums are float, and their order depends only on dim.
//
// As in tiled_product.cu, a block computes 16 outputs (16 values and their gates for a GLU) at a time, its warps share the
// sum, and its first weights are in registers before it waits for the previous kernel. The rows do not fit into shared
// memory: each block reads them from the second-level cache as fragments. So weights cost 2 to 4 times their bytes there, and
// the kernel is faster than a library's only while these are few (MAX_REREAD_BYTES in products.py). Grid (tiles of outputs,
// groups of ROWS rows): a weight with few tiles is read by several blocks, which share the rows.
#include "tiled.cuh"

constexpr int WARPS = 8, MMAS = (ROWS + COLUMNS - 1) / COLUMNS, THREADS = WARPS * WARP;
constexpr int PITCH = MMAS * COLUMNS + 4;  // two lanes at most have a bank in common
constexpr int EACH = (TILE * ROWS + THREADS - 1) / THREADS;  // outputs of a thread

// SIDES: 2 for a GLU, values and gates. HELD: number of weight loads of a warp before the block waits.
template <int SIDES, int HELD>
__device__ __forceinline__ void multiply(const Element* x, const Weight* weight, int rows, int dim, int outputs,
                                         const Finish& finish) {
  CONVOY_SHARED(float, parts);  // [WARPS, SIDES, TILE, PITCH]
  const int first = blockIdx.y * ROWS;  // row of the block
  x += static_cast<Index>(first) * dim;
  rows -= first;
  const int me = threadIdx.x, warp = me / WARP, lane = me % WARP, group = lane / 4, quad = lane % 4;
  const int width = outputs / SIDES, depths = dim / DEPTH, tiles = (width + TILE - 1) / TILE;

  auto weights_of = [&](int tile, int depth, Loaded (&to)[SIDES][2]) {
#pragma unroll
    for (int side = 0; side < SIDES; side++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int output = min(tile * TILE + group + 8 * half, width - 1) + side * width;
        to[side][half] = stream(weight + static_cast<Index>(output) * dim + depth * DEPTH + quad * 8);
      }
  };
  Loaded held[HELD][SIDES][2];
  auto fetch = [&](int tile) {
#pragma unroll
    for (int i = 0; i < HELD; i++)
      if (warp + i * WARPS < depths) weights_of(tile, warp + i * WARPS, held[i]);
  };
  if (static_cast<int>(blockIdx.x) < tiles) {
    fetch(blockIdx.x);
    if (me < SIDES && finish.bias != nullptr) prefetch(finish.bias + blockIdx.x * TILE + me * width);
  }
  await_inputs();

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float sums[MMAS][SIDES][4] = {};
    auto add = [&](const Loaded (&loaded)[SIDES][2], int depth) {
      Words a[SIDES][2];
      widen_weights(loaded, a);
      Words b[MMAS];
#pragma unroll
      for (int of = 0; of < MMAS; of++) {
        const int row = of * COLUMNS + group;
        b[of] = Words{};
        if (row < rows)
          b[of] = *reinterpret_cast<const Words*>(x + static_cast<Index>(row) * dim + depth * DEPTH + quad * 8);
      }
#pragma unroll
      for (int of = 0; of < MMAS; of++)
#pragma unroll
        for (int side = 0; side < SIDES; side++) add_terms(sums[of][side], a[side], b[of]);
    };
#pragma unroll
    for (int i = 0; i < HELD; i++)
      if (warp + i * WARPS < depths) add(held[i], warp + i * WARPS);
    for (int depth = warp + HELD * WARPS; depth < depths; depth += WARPS) {
      Loaded more[SIDES][2];
      weights_of(tile, depth, more);
      add(more, depth);
    }
    if (tile + static_cast<int>(gridDim.x) < tiles) fetch(tile + gridDim.x);
#pragma unroll
    for (int of = 0; of < MMAS; of++)
#pragma unroll
      for (int side = 0; side < SIDES; side++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          parts[((warp * SIDES + side) * TILE + group + i / 2 * 8) * PITCH + of * COLUMNS + 2 * quad + i % 2] =
              sums[of][side][i];
    __syncthreads();
    const int output = tile * TILE + me % TILE;
#pragma unroll
    for (int each = 0; each < EACH; each++) {
      const int row = me / TILE + each * (THREADS / TILE);
      if (row >= min(rows, ROWS) || output >= width) continue;
      float value[SIDES];
#pragma unroll
      for (int side = 0; side < SIDES; side++) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += parts[((w * SIDES + side) * TILE + me % TILE) * PITCH + row];
        if (INT8) sum *= finish.scales[output + side * width];
        if (finish.bias != nullptr) sum += widen(finish.bias[output + side * width]);
        sum *= finish.factor;
        value[side] = SIDES == 2 ? sum : activated(sum, finish.activation);
      }
      if (SIDES == 2) value[0] = gated(value[0], value[SIDES - 1]);
      const Index place = static_cast<Index>(first + row) * width + output;
      if (finish.residual != nullptr)
        value[0] += finish.wide_residual ? static_cast<const float*>(finish.residual)[place]
                                         : widen(static_cast<const Element*>(finish.residual)[place]);
      finish.write(value[0], place);
    }
    __syncthreads();  // before parts is reused
  }
}

#define CONVOY_PARAMETERS                                                                                    \
  const Element *x, const Weight *weight, const float *scales, const Element *bias, const void *residual, int rows, int dim,      \
      int outputs, int activation, int wide_residual, int wide_y, float factor, void *y
#define CONVOY_ARGUMENTS \
  x, weight, rows, dim, outputs, { bias, scales, residual, activation, wide_residual, wide_y, factor, y }

extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_product(CONVOY_PARAMETERS) {
  multiply<1, 4>(CONVOY_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_glu(CONVOY_PARAMETERS) {
  multiply<2, 2>(CONVOY_ARGUMENTS);
}
