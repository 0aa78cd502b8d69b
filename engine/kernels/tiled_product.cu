// A matrix product for 1 to 16 rows by tensor cores, with what stands before and behind it in a layer: all that
// product.cu computes, in bf16 or fp16, where dim is a multiple of 32 and addresses are of 16 bytes. Sums are float,
// and their order depends on nothing but dim and the number of rows that the kernel is compiled for.
//
// A block multiplies 16 outputs (of a GLU 16 values and their gates) at a time, and its warps share the sum. What it
// multiplies first of the weights goes into registers before it waits for the kernel in front, 16 bytes a load, many loads
// under way at once. One mma.m16n8k16 has room for 8 rows, so 8 cost what 1 costs, and more take two; k is permuted alike on both sides, so
// that the 16 bytes of a thread are two of its fragments. Rows are read once, stay in registers between mean,
// variance and norm, and lie in shared memory [ROWS, dim + PAD] as they come to the product. More than fits there is read
// where it lies, as fragments.
#include "common.cuh"

#ifndef CONVOY_ROWS
#define CONVOY_ROWS 1
#endif
constexpr int ROWS = CONVOY_ROWS, TILE = 16, PAD = 32, DEPTH = 32;  // DEPTH: elements of k that two mma take
constexpr int MAX_NORMED = 1024;                                     // dim of rows that are normalised, at most
constexpr int COLUMNS = 8;                                           // rows that an mma has room for
constexpr int MMAS = (ROWS + COLUMNS - 1) / COLUMNS;
constexpr int RELU = 1;                                              // activation

struct alignas(16) Floats {
  float at[4];
};
struct alignas(8) Elements {
  Element at[4];
};

// Weights, which no kernel writes: they may be read before other kernels are waited for, and are not read twice.
__device__ __forceinline__ Words stream(const Element* from) {
#ifdef CONVOY_HOST
  return *reinterpret_cast<const Words*>(from);
#else
  Words f;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.at[0]), "=r"(f.at[1]), "=r"(f.at[2]), "=r"(f.at[3])
               : "l"(from));
  return f;
#endif
}

// Element or float, whichever it is
__device__ __forceinline__ float read(const void* from, int wide, Index at) {
  return wide ? static_cast<const float*>(from)[at] : widen(static_cast<const Element*>(from)[at]);
}

// Four neighbours of either; zeros where nothing is there
__device__ __forceinline__ void read_four(const void* from, int wide, Index at, bool there, float (&to)[4]) {
  if (wide) {
    Floats four{};
    if (there) four = *reinterpret_cast<const Floats*>(static_cast<const float*>(from) + at);
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = four.at[i];
  } else {
    Elements four{};
    if (there) four = *reinterpret_cast<const Elements*>(static_cast<const Element*>(from) + at);
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = widen(four.at[i]);
  }
}

struct Inputs {
  const void* x;         // [rows, dim], float where wide
  const Element* gain;   // [dim], or null: no norm
  const Element* shift;  // [dim]
  const float* heat;     // [rows / beams], or null
  int rows, dim, beams, wide;
  float epsilon;
  Element* normed;  // [rows, dim] where the first block leaves the norm, or null
};

// Rows as they come to the product; threads of whole warps share one, or a warp several, whose loads are under way at once.
template <int THREADS>
struct Rows {
  static constexpr int SHARE = THREADS / ROWS < WARP ? WARP : THREADS / ROWS, PARTS = SHARE / WARP;
  static constexpr int BESIDE = THREADS / SHARE, PASSES = (ROWS + BESIDE - 1) / BESIDE;
  static constexpr int FOURS = (MAX_NORMED / 4 + SHARE - 1) / SHARE;

  // of the row over its threads
  static __device__ __forceinline__ float sum(float x, float* room) {
    x = warp_sum(x);
    if (PARTS == 1) return x;
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = x;
    __syncthreads();
    float whole = 0;
#pragma unroll
    for (int i = 0; i < PARTS; i++) whole += room[threadIdx.x / SHARE * PARTS + i];
    return whole;
  }

  static __device__ __forceinline__ void normalise(const Inputs& in, float (*room)[THREADS / WARP], Element* to) {
    const int first = threadIdx.x / SHARE, begin = threadIdx.x % SHARE * 4;
    float mine[PASSES][FOURS][4];
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++)
#pragma unroll
      for (int i = 0; i < FOURS; i++) {
        const int row = first + pass * BESIDE, at = begin + i * SHARE * 4;
        read_four(in.x, in.wide, static_cast<Index>(row) * in.dim + at, row < in.rows && at < in.dim, mine[pass][i]);
      }
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) finish(in, room, to, first + pass * BESIDE, mine[pass]);
  }

  static __device__ __forceinline__ void finish(const Inputs& in, float (*room)[THREADS / WARP], Element* to, int row,
                                                float (&mine)[FOURS][4]) {
    const int begin = threadIdx.x % SHARE * 4;
    const bool here = row < in.rows;
    float mean = 0, scale = 0;
#pragma unroll
    for (int i = 0; i < FOURS; i++) mean += (mine[i][0] + mine[i][1]) + (mine[i][2] + mine[i][3]);
    mean = sum(mean, room[0]) / static_cast<float>(in.dim);
#pragma unroll
    for (int i = 0; i < FOURS; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        mine[i][j] -= mean;
        if (begin + i * SHARE * 4 < in.dim) scale += mine[i][j] * mine[i][j];
      }
    scale = rsqrtf(sum(scale, room[1]) / static_cast<float>(in.dim) + in.epsilon);
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
      const int at = begin + i * SHARE * 4;
      if (at >= in.dim) continue;
      float gain[4], shift[4];
      read_four(in.gain, 0, at, true, gain);
      read_four(in.shift, 0, at, true, shift);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float value = mine[i][j] * scale * gain[j] + shift[j];
        if (in.normed != nullptr && blockIdx.x == 0 && here)
          narrow(value, in.normed[static_cast<Index>(row) * in.dim + at + j]);
        if (in.heat != nullptr && here) value /= in.heat[row / in.beams];
        narrow(value, to[row * (in.dim + PAD) + at + j]);
      }
    }
  }

  static __device__ __forceinline__ void copy(const Inputs& in, Element* to) {
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
      const int row = threadIdx.x / SHARE + pass * BESIDE;
      const bool here = row < in.rows;
#pragma unroll 8
      for (int at = threadIdx.x % SHARE * 4; at < in.dim; at += SHARE * 4) {
        float value[4];
        read_four(in.x, in.wide, static_cast<Index>(row) * in.dim + at, here, value);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          if (in.heat != nullptr && here) value[j] /= in.heat[row / in.beams];
          narrow(value[j], to[row * (in.dim + PAD) + at + j]);
        }
      }
    }
  }
};

struct Finish {
  const Element* bias;    // [outputs], or null
  const void* residual;   // as y, float where wide_residual; or null
  int relu, wide_residual, wide_y;
  float factor;
  void* y;  // [rows, width], float where wide_y
};

// SIDES: 2 of a GLU, values and gates. HELD: how often a warp's first weights are loaded before the block waits.
// STAGED: whether rows lie in shared memory; else they are elements, neither normalised nor divided.
template <int SIDES, int WARPS, int HELD, bool STAGED = true>
__device__ __forceinline__ void multiply(const Inputs& in, const Element* weight, int outputs, const Finish& finish) {
  constexpr int THREADS = WARPS * WARP;
  CONVOY_SHARED(Element, inputs);
  __shared__ float parts[WARPS][SIDES][TILE][MMAS * COLUMNS + 1];
  __shared__ float room[2][WARPS];
  [[maybe_unused]] constexpr int AHEAD = WARPS > 8 ? 2 : 4;  // more would not fit into a thread's registers
  const int me = threadIdx.x, warp = me / WARP, lane = me % WARP, group = lane / 4, quad = lane % 4;
  const int dim = in.dim, width = outputs / SIDES, pitch = dim + PAD, depths = dim / DEPTH;
  const int tiles = (width + TILE - 1) / TILE;

  // where this lane's elements of a tile's row begin, of the upper or the lower half of its rows
  auto row_of = [&](int tile, int side, int half) {
    const int output = min(tile * TILE + group + 8 * half, width - 1) + side * width;
    return weight + static_cast<Index>(output) * dim + quad * 8;
  };
  Words held[HELD][SIDES][2];
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
  if (static_cast<int>(blockIdx.x) < tiles) fetch(blockIdx.x);
  await_inputs();
  if (STAGED) {
    if (WARPS == 8 && in.gain != nullptr) {  // rows that 16 warps share are longer than what is normalised
      Rows<THREADS>::normalise(in, room, inputs);
    } else {
      Rows<THREADS>::copy(in, inputs);
    }
    __syncthreads();
  }

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float sums[MMAS][SIDES][4] = {};
    auto add = [&](const Words (&a)[SIDES][2], int depth) {
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
        for (int side = 0; side < SIDES; side++)
#pragma unroll
          for (int i = 0; i < 4; i += 2)
            mma<Element>(sums[of][side], a[side][0].at[i], a[side][1].at[i], a[side][0].at[i + 1], a[side][1].at[i + 1],
                b.at[i], b.at[i + 1]);
      }
    };
#pragma unroll
    for (int i = 0; i < HELD; i++)
      if (warp + i * WARPS < depths) add(held[i], warp + i * WARPS);
#pragma unroll(AHEAD)
    for (int depth = warp + HELD * WARPS; depth < depths; depth += WARPS) {
      Words more[SIDES][2];
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
    for (int at = me; at < TILE * ROWS; at += THREADS) {
      const int row = at / TILE, output = tile * TILE + at % TILE;
      if (row >= in.rows || output >= width) continue;
      float value[SIDES];
#pragma unroll
      for (int side = 0; side < SIDES; side++) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += parts[w][side][at % TILE][row];
        if (finish.bias != nullptr) sum += widen(finish.bias[output + side * width]);
        sum *= finish.factor;
        value[side] = finish.relu && sum < 0.0f ? 0.0f : sum;
      }
      if (SIDES == 2) value[0] /= 1.0f + expf(-value[SIDES - 1]);
      const Index place = static_cast<Index>(row) * width + output;
      if (finish.residual != nullptr) value[0] += read(finish.residual, finish.wide_residual, place);
      if (finish.wide_y) {
        static_cast<float*>(finish.y)[place] = value[0];
      } else {
        narrow(value[0], static_cast<Element*>(finish.y)[place]);
      }
    }
    __syncthreads();  // before the parts are used again
  }
}

// The arguments are those of product.cu but `split`.
#define CONVOY_PARAMETERS                                                                                         \
  const void *x, const Element *weight, const Element *bias, const void *residual, const Element *gain,           \
      const Element *shift, const float *heat, int rows, int dim, int outputs, int beams, int activation, int wide_x, \
      int wide_residual, int wide_y, float epsilon, float factor, Element *normed, void *y
#define CONVOY_ARGUMENTS                                                                   \
  {x, gain, shift, heat, rows, dim, beams, wide_x, epsilon, normed}, weight, outputs, {    \
    bias, residual, activation == RELU, wide_residual, wide_y, factor, y                   \
  }

extern "C" __global__ void __launch_bounds__(8 * WARP, 1) tiled_product(CONVOY_PARAMETERS) {
  multiply<1, 8, 4>(CONVOY_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(8 * WARP, 1) tiled_glu(CONVOY_PARAMETERS) {
  multiply<2, 8, 4>(CONVOY_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(16 * WARP, 1) tiled_long(CONVOY_PARAMETERS) {
  multiply<1, 16, (ROWS > COLUMNS ? 5 : 8)>(CONVOY_ARGUMENTS);  // 16 rows that can be staged are no longer than that
}
extern "C" __global__ void __launch_bounds__(16 * WARP, 1) tiled_unstaged(CONVOY_PARAMETERS) {
  multiply<1, 16, (ROWS > COLUMNS ? 6 : 8), false>(CONVOY_ARGUMENTS);
}
