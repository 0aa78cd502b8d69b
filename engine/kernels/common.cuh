// Shared by all kernels: the type of elements, vector loads, sums over a block. No header of the toolkit is needed, so NVRTC
// compiles the files anywhere, and so does a C++20 compiler with tests/support/cuda_shim.h.
// Products and sums are rounded as they are written: NVRTC contracts none (`--fmad=false`), since it decides in each
// instantiation anew, and a row must not depend on the number of rows. Sums of products are therefore spelled `fmaf`.
//
// CONVOY_ELEMENT: float, fp16 or bf16, the type of tensors; all sums are float.
// CONVOY_VECTOR: number of neighbouring elements of a load; a divisor of their axis.
#pragma once

#ifndef CONVOY_ELEMENT
#define CONVOY_ELEMENT float
#endif
#ifndef CONVOY_VECTOR
#define CONVOY_VECTOR 1
#endif

struct fp16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

using Element = CONVOY_ELEMENT;
using Index = long long;  // int64
constexpr int VECTOR = CONVOY_VECTOR;
constexpr int WARP = 32;
constexpr unsigned ALL = 0xffffffffu;  // lanes
#define LOWEST (-__int_as_float(0x7f800000))
#ifndef CONVOY_SHARED  // the block's dynamic shared memory as an array of T
extern __shared__ __align__(16) unsigned char convoy_shared[];
#define CONVOY_SHARED(T, name) T* name = reinterpret_cast<T*>(convoy_shared)
#endif

struct alignas(sizeof(Element) * VECTOR) Pack {
  Element at[VECTOR];
};

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ __forceinline__ float widen(fp16 x) {
#ifdef CONVOY_HOST
  return convoy_from_half(x.bits);
#else
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#endif
}

__device__ __forceinline__ void narrow(float x, float& y) { y = x; }
__device__ __forceinline__ void narrow(float x, bf16& y) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
  const unsigned bits = __float_as_uint(x);  // round to nearest even; NaN stays NaN
  const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  y.bits = static_cast<unsigned short>(x == x ? rounded : 0x7fc0u);
#endif
}
__device__ __forceinline__ void narrow(float x, fp16& y) {
#ifdef CONVOY_HOST
  y.bits = convoy_to_half(x);
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#endif
}

// x after rounding to Element
__device__ __forceinline__ float stored(float x) {
  Element y;
  narrow(x, y);
  return widen(y);
}

__device__ __forceinline__ void load(const Element* from, float (&to)[VECTOR]) {
  const Pack pack = *reinterpret_cast<const Pack*>(from);
#pragma unroll
  for (int i = 0; i < VECTOR; i++) to[i] = widen(pack.at[i]);
}

__device__ __forceinline__ void store(const float (&from)[VECTOR], Element* to) {
  Pack pack;
#pragma unroll
  for (int i = 0; i < VECTOR; i++) narrow(from[i], pack.at[i]);
  *reinterpret_cast<Pack*>(to) = pack;
}

// Programmatic dependent launch: a kernel may start while the previous one ends. `await_inputs` must precede all reads of
// data that another kernel writes, and all writes; before it only weights may be loaded. Therefore pointers of
// kernels must not be `__restrict__`, or the compiler may read earlier. Every kernel of a step calls it.
__device__ __forceinline__ void await_inputs() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Prefetch a weight into the cache.
__device__ __forceinline__ void prefetch(const void* at) {
#ifdef CONVOY_HOST
  convoy_prefetch(at);
#else
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#endif
}

// Activations of a product's outputs, numbered as in linear.py. A GLU takes two outputs, see `gated`.
[[maybe_unused]] constexpr int RELU = 1, GLU = 2, GELU = 3, GELU_TANH = 4, SILU = 5;
__device__ __forceinline__ float activated(float x, int activation) {
  switch (activation) {
    case RELU:
      return x < 0.0f ? 0.0f : x;  // NaN stays NaN
    case GELU:
      return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case GELU_TANH:
      return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case SILU:
      return x / (1.0f + expf(-x));
    default:
      return x;
  }
}

__device__ __forceinline__ float gated(float value, float gate) { return value / (1.0f + expf(-gate)); }

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(ALL, x, step);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = WARP / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, step));
  return x;
}

// Sum over a one-dimensional block of whole warps, for all threads. `room` [32] is shared memory.
__device__ __forceinline__ float block_sum(float x, float* room) {
  const int warps = blockDim.x / WARP;
  x = warp_sum(x);
  if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = x;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < warps; w++) sum += room[w];
  __syncthreads();  // before room is reused
  return sum;
}

// Packed sequences start at multiples of GROUP. bounds [groups, 2] has, for each group of positions, the first
// position of its sequence and the one after the last that is read.
constexpr int GROUP = 8;
struct Bounded {
  int begin, end;
};
__device__ __forceinline__ Bounded bounds_of(const Index* bounds, int position) {
  const Index* own = bounds + position / GROUP * 2;
  return {static_cast<int>(own[0]), static_cast<int>(own[1])};
}

// The taps of a head, or weights proportional to exp(taps).
//
// Every thread computes the softmax itself: a few dozen exponentials from cached memory cost less than a
// round through shared memory and a barrier.
struct Taps {
  const Element* at;
  float top, sum;
  bool softmax;

  __device__ __forceinline__ Taps(const Element* taps, int width, bool softmax)
      : at(taps), top(LOWEST), sum(softmax ? 0.0f : 1.0f), softmax(softmax) {
    if (softmax)
      for (int k = 0; k < width; k++) top = fmaxf(top, widen(taps[k]));
  }

  // weight of tap k before the division by `sum`; call it once for each tap
  __device__ __forceinline__ float next(int k) {
    const float tap = widen(at[k]);
    if (!softmax) return tap;
    const float weight = expf(tap - top);
    sum += weight;
    return weight;
  }
};

// Eight elements of 16 bits, or four words.
struct alignas(16) Words {
  unsigned at[4];
};

// c [16, 8] += a [16, 16] . b [16, 8], with the fragments of the PTX ISA: in lane 4 * g + q, c has
// rows g and g + 8 and columns 2 * q and 2 * q + 1; a has the same rows and k = 2 * q, 2 * q + 1 and both plus 8; b has
// these k of column g. Only for types of 16 bits.
#ifdef CONVOY_HOST
template <typename T>
__device__ __forceinline__ void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1) {
  convoy_mma(c, {a0, a1, a2, a3}, {b0, b1}, [](unsigned short bits) { return widen(T{bits}); });
}
#else
#define CONVOY_MMA(type)                                                                                        \
  __device__ __forceinline__ void mma_of(type, float(&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, \
                                         unsigned b0, unsigned b1) {                                             \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." CONVOY_MMA_##type                                      \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                              \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                        \
  }
#define CONVOY_MMA_bf16 "bf16.bf16.f32"
#define CONVOY_MMA_fp16 "f16.f16.f32"
CONVOY_MMA(bf16)
CONVOY_MMA(fp16)
template <typename T>
__device__ __forceinline__ void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1) {
  mma_of(T{}, c, a0, a1, a2, a3, b0, b1);
}
#endif
