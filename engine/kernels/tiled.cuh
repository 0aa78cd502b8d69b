// Shared by kernels that multiply few rows by tensor cores, in bf16 or fp16: loads of weights, input rows with the norm
// before the product, and the product of the weights of one head. For at most CONVOY_ROWS rows.
#pragma once
#include "common.cuh"

#ifndef CONVOY_ROWS
#define CONVOY_ROWS 1
#endif
constexpr int ROWS = CONVOY_ROWS, TILE = 16, PAD = 32, DEPTH = 32;  // DEPTH: elements of k in two mma
constexpr int MAX_NORMED = 1024;                                     // largest dim of normalised rows
constexpr int COLUMNS = 8;                                           // rows of an mma

struct alignas(16) Floats {
  float at[4];
};
struct alignas(8) Pairs {  // four elements
  unsigned at[2];
};

// Load weights, which no kernel writes, so that they may be read before the wait; they are read once.
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

// The same for eight weights of 8 bits
__device__ __forceinline__ Pairs stream(const signed char* from) {
#ifdef CONVOY_HOST
  return *reinterpret_cast<const Pairs*>(from);
#else
  Pairs f;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
               : "=r"(f.at[0]), "=r"(f.at[1])
               : "l"(from));
  return f;
#endif
}

// Two neighbours in a register, rounded by `narrow`
#ifdef CONVOY_HOST
__device__ __forceinline__ unsigned packed(float first, float second) {
  Element x, y;
  narrow(first, x);
  narrow(second, y);
  return static_cast<unsigned>(x.bits) | static_cast<unsigned>(y.bits) << 16;
}
#else
__device__ __forceinline__ unsigned packed_of(bf16, float first, float second) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}
__device__ __forceinline__ unsigned packed_of(fp16, float first, float second) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}
__device__ __forceinline__ unsigned packed(float first, float second) { return packed_of(Element{}, first, second); }
#endif

__device__ __forceinline__ void widen_four(const Pairs& from, float (&to)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) to[i] = widen(Element{static_cast<unsigned short>(from.at[i / 2] >> i % 2 * 16)});
}

// Four neighbours of either type, or zeros
__device__ __forceinline__ void read_four(const void* from, int wide, Index at, bool there, float (&to)[4]) {
  if (wide) {
    Floats four{};
    if (there) four = *reinterpret_cast<const Floats*>(static_cast<const float*>(from) + at);
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = four.at[i];
  } else {
    Pairs four{};
    if (there) four = *reinterpret_cast<const Pairs*>(static_cast<const Element*>(from) + at);
    widen_four(four, to);
  }
}

__device__ __forceinline__ void write_four(const float (&from)[4], Element* to) {
  *reinterpret_cast<Pairs*>(to) = {{packed(from[0], from[1]), packed(from[2], from[3])}};
}

// Weights of a product: elements, or with CONVOY_INT8 bytes, whose sums are multiplied by the scale of their output
#ifdef CONVOY_INT8
constexpr bool INT8 = true;
using Weight = signed char;
using Loaded = Pairs;  // eight weights
#else
constexpr bool INT8 = false;
using Weight = Element;
using Loaded = Words;
#endif

__device__ __forceinline__ const Words& elements(const Words& weights) { return weights; }
#ifdef CONVOY_HOST
__device__ __forceinline__ Words elements(const Pairs& weights) {
  const auto of = [&](int i) { return static_cast<float>(static_cast<signed char>(weights.at[i / 4] >> i % 4 * 8)); };
  return {{packed(of(0), of(1)), packed(of(2), of(3)), packed(of(4), of(5)), packed(of(6), of(7))}};
}
#else
// Elements 2 * i and 2 * i + 1 of four bytes plus 128. A byte is the last of a number whose unit is 1, in fp16 1024 + byte, in
// float, for bf16, 2^23 + byte; the difference to 128 more than its first part is exact.
template <int i>
__device__ __forceinline__ unsigned two_of(fp16, unsigned bytes) {
  unsigned both;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(both) : "r"(bytes), "r"(0x64646464u), "n"(i == 0 ? 0x4140 : 0x4342));
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(both) : "r"(both), "r"(0x64806480u));
  return both;
}
template <int i>
__device__ __forceinline__ unsigned two_of(bf16, unsigned bytes) {
  unsigned first, second;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(first) : "r"(bytes), "r"(0x4b000000u), "n"(0x7440 + 2 * i));
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(second) : "r"(bytes), "r"(0x4b000000u), "n"(0x7441 + 2 * i));
  return packed(__uint_as_float(first) - 8388736.0f, __uint_as_float(second) - 8388736.0f);
}
__device__ __forceinline__ Words elements(const Pairs& weights) {
  const unsigned low = weights.at[0] ^ 0x80808080u, high = weights.at[1] ^ 0x80808080u;
  const Element type{};
  return {{two_of<0>(type, low), two_of<1>(type, low), two_of<0>(type, high), two_of<1>(type, high)}};
}
#endif

// The weights of two outputs for each side of a GLU as elements
template <int SIDES>
__device__ __forceinline__ void widen_weights(const Loaded (&loaded)[SIDES][2], Words (&a)[SIDES][2]) {
#pragma unroll
  for (int side = 0; side < SIDES; side++)
#pragma unroll
    for (int half = 0; half < 2; half++) a[side][half] = elements(loaded[side][half]);
}

// Add DEPTH terms to the sums of TILE outputs and COLUMNS rows. a: weights of two outputs, 8 apart; b: inputs of a row.
__device__ __forceinline__ void add_terms(float (&sums)[4], const Words (&a)[2], const Words& b) {
#pragma unroll
  for (int i = 0; i < 4; i += 2)
    mma<Element>(sums, a[0].at[i], a[1].at[i], a[0].at[i + 1], a[1].at[i + 1], b.at[i], b.at[i + 1]);
}

struct Inputs {
  const void* x;         // [rows, dim], float if wide
  const Element* gain;   // [dim], or null
  const Element* shift;  // [dim], or null: a root-mean-square norm
  const float* heat;     // [rows / beams], or null
  int rows, dim, beams, wide;
  float epsilon;
  Element* normed;  // [rows, dim]: output of the norm or lookup, by the first block; or null
  // For a lookup, otherwise null: x is a table, whose rows for tokens [rows] are scaled, and the row of signals for the
  // position of the slot is added.
  const Index* tokens = nullptr;
  const Index* positions = nullptr;   // [rows / beams]
  const Element* signals = nullptr;   // [positions, dim], or null
  float scale = 1.0f;

  __device__ __forceinline__ float cool(int row) const {
    return heat != nullptr && row < rows ? 1.0f / heat[row / beams] : 1.0f;
  }
};

// Gain and shift of a norm, which are weights: a thread loads eight of each before the block waits.
struct Affine {
  Words gain, shift;
  bool mine;
  __device__ __forceinline__ explicit Affine(const Inputs& in)
      : gain{}, shift{}, mine(in.gain != nullptr && static_cast<int>(threadIdx.x) * 8 < in.dim) {
    if (!mine) return;
    gain = stream(in.gain + threadIdx.x * 8);
    if (in.shift != nullptr) shift = stream(in.shift + threadIdx.x * 8);
  }
};

// Input rows of the product, [ROWS, dim + PAD] in shared memory. Whole warps share a row, or a warp
// computes several with their loads in flight at once.
template <int THREADS>
struct Rows {
  static constexpr int SHARE = THREADS / ROWS < WARP ? WARP : THREADS / ROWS, PARTS = SHARE / WARP;
  static constexpr int BESIDE = THREADS / SHARE, PASSES = (ROWS + BESIDE - 1) / BESIDE;
  static constexpr int FOURS = (MAX_NORMED / 4 + SHARE - 1) / SHARE;
  struct Room {
    float sums[2][THREADS / WARP];
    alignas(16) Element affine[2][MAX_NORMED];
  };
  static_assert(THREADS * 8 >= MAX_NORMED);

  // sums over the threads of a row
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

  static __device__ __forceinline__ void normalise(const Inputs& in, const Affine& affine, Room& room, Element* to) {
    const int first = threadIdx.x / SHARE, begin = threadIdx.x % SHARE * 4;
    float mine[PASSES][FOURS][4];
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++)
#pragma unroll
      for (int i = 0; i < FOURS; i++) {
        const int row = first + pass * BESIDE, at = begin + i * SHARE * 4;
        read_four(in.x, in.wide, static_cast<Index>(row) * in.dim + at, row < in.rows && at < in.dim, mine[pass][i]);
      }
    if (affine.mine) {
      *reinterpret_cast<Words*>(room.affine[0] + threadIdx.x * 8) = affine.gain;
      *reinterpret_cast<Words*>(room.affine[1] + threadIdx.x * 8) = affine.shift;
    }
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) finish(in, room, to, first + pass * BESIDE, mine[pass]);
  }

  static __device__ __forceinline__ void finish(const Inputs& in, Room& room, Element* to, int row,
                                                float (&mine)[FOURS][4]) {
    const int begin = threadIdx.x % SHARE * 4;
    const bool here = row < in.rows;
    const float cool = in.cool(row);
    float mean = 0, scale = 0;
#pragma unroll
    for (int i = 0; i < FOURS; i++) mean += (mine[i][0] + mine[i][1]) + (mine[i][2] + mine[i][3]);
    mean = in.shift != nullptr ? sum(mean, room.sums[0]) / static_cast<float>(in.dim) : 0.0f;
#pragma unroll
    for (int i = 0; i < FOURS; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        mine[i][j] = begin + i * SHARE * 4 < in.dim ? mine[i][j] - mean : 0.0f;
        scale = fmaf(mine[i][j], mine[i][j], scale);
      }
    scale = rsqrtf(sum(scale, room.sums[1]) / static_cast<float>(in.dim) + in.epsilon);
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
      const int at = begin + i * SHARE * 4;
      if (at >= in.dim) continue;
      float gain[4], shift[4], value[4];
      widen_four(*reinterpret_cast<const Pairs*>(room.affine[0] + at), gain);
      widen_four(*reinterpret_cast<const Pairs*>(room.affine[1] + at), shift);
#pragma unroll
      for (int j = 0; j < 4; j++) value[j] = fmaf(mine[i][j] * scale, gain[j], shift[j]);
      if (in.normed != nullptr && blockIdx.x == 0 && here)
        write_four(value, in.normed + static_cast<Index>(row) * in.dim + at);
#pragma unroll
      for (int j = 0; j < 4; j++) value[j] *= cool;
      write_four(value, to + row * (in.dim + PAD) + at);
    }
  }

  // A row of embed.cu
  static __device__ __forceinline__ void look_up(const Inputs& in, int row, Element* to) {
    const bool here = row < in.rows, added = here && in.signals != nullptr;
    const Index token = here ? in.tokens[row] : 0, position = added ? in.positions[row / in.beams] : 0;
#pragma unroll 4
    for (int at = threadIdx.x % SHARE * 4; at < in.dim; at += SHARE * 4) {
      float value[4], signal[4];
      read_four(in.x, 0, token * in.dim + at, here, value);
      read_four(in.signals, 0, position * in.dim + at, added, signal);
#pragma unroll
      for (int i = 0; i < 4; i++) value[i] = fmaf(value[i], in.scale, signal[i]);
      write_four(value, to + at);
      if (blockIdx.x == 0 && here) write_four(value, in.normed + static_cast<Index>(row) * in.dim + at);
    }
  }

  static __device__ __forceinline__ void copy(const Inputs& in, Element* to) {
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
      const int row = threadIdx.x / SHARE + pass * BESIDE, begin = threadIdx.x % SHARE;
      const bool here = row < in.rows;
      const Index line = static_cast<Index>(row) * in.dim;
      const float cool = in.cool(row);
      Element* mine = to + row * (in.dim + PAD);
      if (in.tokens != nullptr) {
        look_up(in, row, mine);
        continue;
      }
      if (!in.wide && in.heat == nullptr) {
#pragma unroll 4
        for (int at = begin * 8; at < in.dim; at += SHARE * 8) {
          Words eight{};
          if (here) eight = *reinterpret_cast<const Words*>(static_cast<const Element*>(in.x) + line + at);
          *reinterpret_cast<Words*>(mine + at) = eight;
        }
        continue;
      }
#pragma unroll 2
      for (int at = begin * 4; at < in.dim; at += SHARE * 4) {
        float value[4];
        read_four(in.x, in.wide, line + at, here, value);
#pragma unroll
        for (int j = 0; j < 4; j++) value[j] *= cool;
        write_four(value, mine + at);
      }
    }
  }
};

// The product of up to 8 rows with the weights of a head [outputs, dim], at most 64 outputs, by a block of WARPS warps.
// A warp computes a tile of 16 outputs over a share of k; its first weights are in registers before the block waits.
template <int WARPS>
struct HeadProduct {
  static constexpr int TILES = 4, HELD = MAX_NORMED / DEPTH * TILES / WARPS, CHAINS = 4;
  using Parts = float[WARPS][TILE][COLUMNS + 1];
  int dim, depths, split, tile, part;
  bool mine;              // the tile exists
  const Element* row[2];  // first elements of the lane in the upper and lower half of the tile's rows
  Words held[HELD][2];

  __device__ __forceinline__ HeadProduct(const Element* weight, int outputs, int dim)
      : dim(dim), depths(dim / DEPTH), split(WARPS / (outputs <= TILE ? 1 : outputs <= 2 * TILE ? 2 : TILES)) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    tile = warp / split;
    part = warp % split;
    mine = tile * TILE < outputs;
#pragma unroll
    for (int half = 0; half < 2; half++)
      row[half] = weight + static_cast<Index>(min(tile * TILE + lane / 4 + 8 * half, outputs - 1)) * dim + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        if (mine && part + i * split < depths) held[i][half] = stream(row[half] + (part + i * split) * DEPTH);
  }

  __device__ __forceinline__ void add(float (&sums)[4], const Words (&a)[2], const Element* inputs, int depth) const {
    const int lane = threadIdx.x % WARP;
    Words b{};
    if (lane / 4 < ROWS)
      b = *reinterpret_cast<const Words*>(inputs + lane / 4 * (dim + PAD) + depth * DEPTH + lane % 4 * 8);
    add_terms(sums, a, b);
  }

  // inputs: output of `Rows`. Writes the partial sums of each warp, for all threads.
  __device__ __forceinline__ void multiply(const Element* inputs, Parts& parts) const {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float sums[CHAINS][4] = {};  // an mma depends only on the previous one of its chain
    if (mine) {
#pragma unroll
      for (int i = 0; i < HELD; i++)
        if (part + i * split < depths) add(sums[i % CHAINS], held[i], inputs, part + i * split);
#pragma unroll 2
      for (int depth = part + HELD * split; depth < depths; depth += split) {
        const Words more[2] = {stream(row[0] + depth * DEPTH), stream(row[1] + depth * DEPTH)};
        add(sums[0], more, inputs, depth);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      parts[warp][lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2] =
          (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
    __syncthreads();
  }

  // an output of a row
  __device__ __forceinline__ float sum(const Parts& parts, int output, int row_of) const {
    float whole = 0;
    for (int i = 0; i < split; i++) whole += parts[output / TILE * split + i][output % TILE][row_of];
    return whole;
  }
};

// Operations after a product
struct Finish {
  const Element* bias;   // [outputs], or null
  const float* scales;   // [outputs] if INT8
  const void* residual;  // shape of y, float if wide_residual; or null
  int activation, wide_residual, wide_y;
  float factor;
  void* y;  // [rows, width], float if wide_y

  __device__ __forceinline__ void write(float value, Index place) const {
    if (wide_y) {
      static_cast<float*>(y)[place] = value;
    } else {
      narrow(value, static_cast<Element*>(y)[place]);
    }
  }
};

// Start a copy of 16 bytes into shared memory without registers. `await_copies` waits for the copies of the thread,
// and a barrier after it for all; until then the target must not be read.
__device__ __forceinline__ void copy_async(const void* from, const void* to) {
#ifdef CONVOY_HOST
  convoy_copy_async(from, to);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from));
#endif
}
__device__ __forceinline__ void await_copies() {
#ifdef CONVOY_HOST
  convoy_await_copies();
#else
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
