// A matrix product of 1 to 16 rows by tensor cores, fused with the operations before and after it: all of product.cu in bf16
// or fp16, if dim is a multiple of 32 and addresses are multiples of 16 bytes. Sums are float, and their order depends only
// on dim and the number of rows that the kernel is compiled for.
//
// A block computes 16 outputs (16 values and their gates for a GLU) at a time, and its warps share the sum. The first weights
// are loaded into registers before the block waits for the previous kernel, with many loads of 16 bytes in flight. One
// mma.m16n8k16 has room for 8 rows, so 8 cost as much as 1, and more need two. k is permuted in the same way on both sides,
// so that the 16 bytes of a thread are two of its fragments. Rows are read once, stay in registers for mean, variance and
// norm, and are then staged in shared memory [ROWS, dim + PAD]. Rows that do not fit are read from global memory as
// fragments.
#include "tiled.cuh"

constexpr int MMAS = (ROWS + COLUMNS - 1) / COLUMNS;

// SIDES: 2 for a GLU, values and gates. HELD: number of weight loads of a warp before the block waits.
// STAGED: rows are in shared memory; otherwise they are elements, neither normalised nor divided.
// LISTED: output i is the token among[i], or none if that is negative; y has a column for each token of the vocabulary.
template <int SIDES, int WARPS, int HELD, bool STAGED = true, bool LISTED = false>
__device__ __forceinline__ void multiply(const Inputs& in, const Weight* weight, int outputs, const Finish& finish,
                                         const Index* among = nullptr, int vocab = 0) {
  constexpr int THREADS = WARPS * WARP;
  CONVOY_SHARED(Element, inputs);
  __shared__ float parts[WARPS][SIDES][TILE][MMAS * COLUMNS + 1];
  constexpr bool NORMS = WARPS == 8;  // rows shared by 16 warps are too long for a norm
  [[maybe_unused]] constexpr int AHEAD = WARPS == 8 ? 4 : ROWS > COLUMNS ? 2 : 1;  // limited by registers
  const int me = threadIdx.x, warp = me / WARP, lane = me % WARP, group = lane / 4, quad = lane % 4;
  const int dim = in.dim, width = outputs / SIDES, pitch = dim + PAD, depths = dim / DEPTH;
  const int tiles = (width + TILE - 1) / TILE;
  auto row_of_output = [&](int output) -> Index { return LISTED ? max(among[output], Index{0}) : output; };

  [[maybe_unused]] auto is_past = [&](int tile) { return tile * TILE >= in.beams && among[tile * TILE] < 0; };

  // first elements of the lane in a row of the tile, of the upper or lower half of its rows
  auto row_of = [&](int tile, int side, int half) {
    const int output = min(tile * TILE + group + 8 * half, width - 1) + side * width;
    return weight + row_of_output(output) * dim + quad * 8;
  };
  Loaded held[HELD][SIDES][2];
  auto fetch = [&](int tile) {
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
      for (int side = 0; side < SIDES; side++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          if (warp + i * WARPS < depths)
            held[i][side][half] = stream(row_of(tile, side, half) + (warp + i * WARPS) * DEPTH);
  };
  // addend of the thread's output, not converted yet, which would wait for the load
  static_assert(TILE * ROWS <= THREADS);
  const int own_row = me / TILE, own = me % TILE;
  const bool has_row = own_row < min(in.rows, ROWS);
  Element bias[SIDES] = {}, narrow_residual{};
  float wide_residual = 0, scale[SIDES] = {};
  auto surround = [&](int tile) {
    const int output = tile * TILE + own;
    if (!has_row || output >= width) return;
    if (INT8)
#pragma unroll
      for (int side = 0; side < SIDES; side++) scale[side] = finish.scales[row_of_output(output + side * width)];
    if (finish.bias != nullptr)
#pragma unroll
      for (int side = 0; side < SIDES; side++) bias[side] = finish.bias[row_of_output(output + side * width)];
    const Index place = static_cast<Index>(own_row) * width + output;
    if (finish.residual == nullptr) return;
    if (finish.wide_residual) {
      wide_residual = static_cast<const float*>(finish.residual)[place];
    } else {
      narrow_residual = static_cast<const Element*>(finish.residual)[place];
    }
  };
  if (!LISTED && static_cast<int>(blockIdx.x) < tiles) {
    fetch(blockIdx.x);
    if (me < SIDES && finish.bias != nullptr) prefetch(finish.bias + blockIdx.x * TILE + me * width);
  }
  if constexpr (NORMS) {
    __shared__ typename Rows<THREADS>::Room room;
    const Affine affine(in);
    await_inputs();
    if (LISTED) {  // the list is an input
      if (is_past(blockIdx.x)) return;
      fetch(blockIdx.x);
    }
    surround(blockIdx.x);
    in.gain != nullptr ? Rows<THREADS>::normalise(in, affine, room, inputs) : Rows<THREADS>::copy(in, inputs);
  } else {
    await_inputs();
    surround(blockIdx.x);
    if (STAGED) Rows<THREADS>::copy(in, inputs);
  }
  if (STAGED) __syncthreads();

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    if (LISTED && is_past(tile)) return;
    float sums[MMAS][SIDES][4] = {};
    auto add = [&](const Loaded (&loaded)[SIDES][2], int depth) {
      Words a[SIDES][2];
      widen_weights(loaded, a);
#pragma unroll
      for (int of = 0; of < MMAS; of++) {
        const int row = of * COLUMNS + group, at = depth * DEPTH + quad * 8;
        Words b{};
        if (STAGED) {
          if (row < ROWS) b = *reinterpret_cast<const Words*>(inputs + row * pitch + at);
        } else if (row < in.rows) {
          b = *reinterpret_cast<const Words*>(static_cast<const Element*>(in.x) + static_cast<Index>(row) * dim + at);
        }
#pragma unroll
        for (int side = 0; side < SIDES; side++) add_terms(sums[of][side], a[side], b);
      }
    };
#pragma unroll
    for (int i = 0; i < HELD; i++)
      if (warp + i * WARPS < depths) add(held[i], warp + i * WARPS);
#pragma unroll(AHEAD)
    for (int depth = warp + HELD * WARPS; depth < depths; depth += WARPS) {
      Loaded more[SIDES][2];
#pragma unroll
      for (int side = 0; side < SIDES; side++)
#pragma unroll
        for (int half = 0; half < 2; half++) more[side][half] = stream(row_of(tile, side, half) + depth * DEPTH);
      add(more, depth);
    }
    if (tile + static_cast<int>(gridDim.x) < tiles) fetch(tile + gridDim.x);
#pragma unroll
    for (int of = 0; of < MMAS; of++)
#pragma unroll
      for (int side = 0; side < SIDES; side++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          parts[warp][side][group + i / 2 * 8][of * COLUMNS + 2 * quad + i % 2] = sums[of][side][i];
    __syncthreads();
    const int output = tile * TILE + own;
    if (has_row && output < width) {
      float value[SIDES];
#pragma unroll
      for (int side = 0; side < SIDES; side++) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += parts[w][side][own][own_row];
        sum = (INT8 ? fmaf(sum, scale[side], widen(bias[side])) : sum + widen(bias[side])) * finish.factor;
        value[side] = SIDES == 2 ? sum : activated(sum, finish.activation);
      }
      if (SIDES == 2) value[0] = gated(value[0], value[SIDES - 1]);
      const Index place = static_cast<Index>(own_row) * width + output;
      value[0] += finish.wide_residual ? wide_residual : widen(narrow_residual);
      if (!LISTED) finish.write(value[0], place);
      if (LISTED && among[output] >= 0) finish.write(value[0], static_cast<Index>(own_row) * vocab + among[output]);
    }
    surround(tile + gridDim.x);
    __syncthreads();  // before parts is reused
  }
}

// The arguments are those of product.cu without `split`, with a lookup.
#define CONVOY_PARAMETERS                                                                                         \
  const void *x, const Weight *weight, const float *scales, const Element *bias, const void *residual, const Element *gain,           \
      const Element *shift, const float *heat, const Index *tokens, const Index *positions, const Element *signals, \
      float scale, int rows, int dim, int outputs, int beams, int activation, int wide_x, \
      int wide_residual, int wide_y, float epsilon, float factor, \
      Element *normed, void *y
#define CONVOY_ARGUMENTS                                                                   \
  {x, gain, shift, heat, rows, dim, beams, wide_x, epsilon, normed, tokens, positions, signals, scale}, weight, outputs, { \
    bias, scales, residual, activation, wide_residual, wide_y, factor, y                           \
  }

// two blocks fit into a multiprocessor, so that blocks of the next product can start early
extern "C" __global__ void __launch_bounds__(8 * WARP, (ROWS > COLUMNS ? 1 : 2)) tiled_product(CONVOY_PARAMETERS) {
  multiply<1, 8, 4>(CONVOY_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(8 * WARP, 1) tiled_glu(CONVOY_PARAMETERS) {
  multiply<2, 8, 4>(CONVOY_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(16 * WARP, 1) tiled_long(CONVOY_PARAMETERS) {
  multiply<1, 16, (ROWS > COLUMNS ? 5 : 8)>(CONVOY_ARGUMENTS);  // largest number for 16 staged rows
}
extern "C" __global__ void __launch_bounds__(16 * WARP, 1) tiled_unstaged(CONVOY_PARAMETERS) {
  multiply<1, 16, (ROWS > COLUMNS ? 6 : 8), false>(CONVOY_ARGUMENTS);
}

// Logits of listed tokens: among [slots, outputs] has the tokens of each slot, first a forced token for each beam, then a
// list; negative where there is no forced token, and behind the list. y [slots, beams, vocab] is float and keeps its
// values elsewhere. A token that is listed twice is written twice with the same value. Grid (blocks, slots); a block has the
// rows of a slot.
extern "C" __global__ void __launch_bounds__(8 * WARP, 1)
    tiled_listed(const void* x, const Weight* weight, const float* scales, const Element* bias, const Element* gain,
                 const Element* shift, const float* heat, const Index* among, int dim, int outputs, int beams, int vocab,
                 int wide_x, float epsilon, Element* normed, float* y) {
  const int slot = blockIdx.y;
  const Index first = static_cast<Index>(slot) * beams;
  if (wide_x) {
    x = static_cast<const float*>(x) + first * dim;
  } else {
    x = static_cast<const Element*>(x) + first * dim;
  }
  if (heat != nullptr) heat += slot;
  if (normed != nullptr) normed += first * dim;
  multiply<1, 8, 4, true, true>({x, gain, shift, heat, beams, dim, beams, wide_x, epsilon, normed}, weight, outputs,
                                {bias, scales, nullptr, 0, 0, 1, 1.0f, y + first * vocab},
                                among + static_cast<Index>(slot) * outputs, vocab);
}
