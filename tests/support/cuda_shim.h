// CUDA's words on a CPU, so that tests run the real source of engine/kernels/*.cu. For tests only.
//
// Each thread of a block is a fiber, and a warp runs as far as it can: to the next barrier of the block. Warps and
// the threads in them take turns in ascending or in descending order, so a barrier that is missing shows as a wrong
// result in one of the two, every time. Shared memory begins as NaN.
#ifndef CONVOY_TESTS_CUDA_SHIM_H
#define CONVOY_TESTS_CUDA_SHIM_H

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define CONVOY_HOST
#define __global__ __attribute__((visibility("default")))
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;
using std::max;
using std::min;

namespace emulation {

enum class State { ready, at_block, at_warp, done };

struct Fiber {
  ucontext_t context;
  jmp_buf here;  // where it waits
  std::vector<char> stack;
  bool begun;
  State state;
  dim3 index;
};

inline std::vector<Fiber> fibers;
inline jmp_buf scheduler;
inline size_t current;
inline std::vector<unsigned> exchanged;
inline std::vector<unsigned char> memory;

// Only a fiber's beginning takes setcontext; turns are passed on by jumps, which make no call of the system.
inline void wait(State state) {
  Fiber& fiber = fibers[current];
  fiber.state = state;
  if (!_setjmp(fiber.here)) _longjmp(scheduler, 1);
}

inline void resume(Fiber& fiber) {
  if (_setjmp(scheduler)) return;
  if (std::exchange(fiber.begun, true)) _longjmp(fiber.here, 1);
  setcontext(&fiber.context);
}

inline unsigned exchange(unsigned value, int mask) {
  exchanged[current] = value;
  wait(State::at_warp);
  const size_t other = current ^ static_cast<size_t>(mask);
  if (other >= fibers.size() || fibers[other].state == State::done) {
    std::fprintf(stderr, "a lane reads from one that is not there\n");
    std::abort();
  }
  const unsigned found = exchanged[other];
  wait(State::at_warp);
  return found;
}

// Wakes the fibers first..last-1 if all that are left of them wait for the same thing.
inline bool release(size_t first, size_t last, State state) {
  bool some = false;
  for (size_t i = first; i < last; i++) {
    if (fibers[i].state != state && fibers[i].state != State::done) return false;
    some |= fibers[i].state == state;
  }
  for (size_t i = first; i < last; i++)
    if (fibers[i].state == state) fibers[i].state = State::ready;
  return some;
}

template <typename Body>
void entry(Body* body) {
  (*body)();
  fibers[current].state = State::done;
  _longjmp(scheduler, 1);
}

template <typename Body>
void block(Body& body, bool descending) {
  const size_t threads = fibers.size();
  for (size_t i = 0; i < threads; i++) {
    Fiber& fiber = fibers[i];
    fiber.state = State::ready;
    fiber.begun = false;
    fiber.index = {static_cast<unsigned>(i % blockDim.x), static_cast<unsigned>(i / blockDim.x % blockDim.y),
                   static_cast<unsigned>(i / blockDim.x / blockDim.y)};
    fiber.stack.resize(1 << 16);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(entry<Body>), 1, &body);
  }
  std::fill(memory.begin(), memory.end(), 0xff);
  const size_t warps = (threads + 31) / 32;
  do {
    for (size_t turn = 0; turn < warps; turn++) {  // each as far as it gets without the others
      const size_t first = (descending ? warps - 1 - turn : turn) * 32, last = min(first + 32, threads);
      do {
        for (size_t lane = first; lane < last; lane++) {
          current = descending ? last - 1 - (lane - first) : lane;
          if (fibers[current].state != State::ready) continue;
          threadIdx = fibers[current].index;
          resume(fibers[current]);
        }
      } while (release(first, last, State::at_warp));
    }
  } while (release(0, threads, State::at_block));
  for (const Fiber& fiber : fibers)
    if (fiber.state != State::done) {
      std::fprintf(stderr, "threads of a block wait for each other for ever\n");
      std::abort();
    }
}

template <typename... Parameters, size_t... I>
void launch(void (*kernel)(Parameters...), void** arguments, std::index_sequence<I...>, bool descending) {
  auto body = [&] { kernel(*static_cast<std::remove_cvref_t<Parameters>*>(arguments[I])...); };
  for (unsigned z = 0; z < gridDim.z; z++)
    for (unsigned y = 0; y < gridDim.y; y++)
      for (unsigned x = 0; x < gridDim.x; x++) {
        blockIdx = {x, y, z};
        block(body, descending);
      }
}

// As cuLaunchKernel: grid and block [3], bytes of dynamic shared memory, a pointer to each argument.
template <typename... Parameters>
void launch(void (*kernel)(Parameters...), const unsigned* grid, const unsigned* size, size_t shared,
            void** arguments, bool descending) {
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {size[0], size[1], size[2]};
  const size_t threads = static_cast<size_t>(size[0]) * size[1] * size[2];
  fibers.resize(threads);
  exchanged.resize(threads);
  memory.assign(shared, 0xff);
  launch(kernel, arguments, std::index_sequence_for<Parameters...>{}, descending);
}

}  // namespace emulation

#define CONVOY_SHARED(T, name) T* name = reinterpret_cast<T*>(emulation::memory.data())

inline void __syncthreads() { emulation::wait(emulation::State::at_block); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __shfl_xor_sync(unsigned, float x, int mask) {
  return std::bit_cast<float>(emulation::exchange(std::bit_cast<unsigned>(x), mask));
}
inline unsigned __shfl_xor_sync(unsigned, unsigned x, int mask) { return emulation::exchange(x, mask); }
// mma.m16n8k16 of a warp: c [16, 8] += a [16, 16] . b [16, 8]. A lane has of c rows `lane / 4` and 8 more, columns
// `lane % 4 * 2` and the next; of a the same rows, of k the same two and 8 more; of b these k of column `lane / 4`.
struct Fragments {
  unsigned a[4], b[2];
};
inline std::vector<Fragments> convoy_fragments;
template <typename Widen>
void convoy_mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Widen widen) {
  const size_t me = emulation::current, warp = me / 32 * 32, group = me % 32 / 4, quad = me % 4;
  if (convoy_fragments.size() < emulation::fibers.size()) convoy_fragments.resize(emulation::fibers.size());
  convoy_fragments[me] = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  emulation::wait(emulation::State::at_warp);
  const auto half = [&](unsigned pair, size_t i) { return widen(static_cast<unsigned short>(pair >> i * 16)); };
  for (size_t i = 0; i < 4; i++) {
    float sum = 0;
    for (size_t k = 0; k < 16; k++) {  // who holds it: two neighbours lie in a register
      const size_t holder = k % 8 / 2, upper = k / 8;
      const Fragments& left = convoy_fragments[warp + group * 4 + holder];
      const Fragments& right = convoy_fragments[warp + (quad * 2 + i % 2) * 4 + holder];
      sum += half(left.a[upper * 2 + i / 2], k % 2) * half(right.b[upper], k % 2);
    }
    c[i] += sum;
  }
  emulation::wait(emulation::State::at_warp);  // before the fragments are the next one's
}

inline void convoy_prefetch(const void*) {}

// cp.async of 16 bytes: what a thread copies arrives when it waits for it, and not before.
struct Copied {
  void* to;
  const void* from;
};
inline std::vector<std::vector<Copied>> convoy_copies;
inline void convoy_copy_async(const void* from, const void* to) {
  const auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if (!aligned(from) || !aligned(to)) {
    std::fprintf(stderr, "a copy of 16 bytes that are not aligned\n");
    std::abort();
  }
  if (convoy_copies.size() < emulation::fibers.size()) convoy_copies.resize(emulation::fibers.size());
  convoy_copies[emulation::current].push_back({const_cast<void*>(to), from});
}
inline void convoy_await_copies() {
  if (convoy_copies.size() <= emulation::current) return;
  for (const Copied& copy : std::exchange(convoy_copies[emulation::current], {})) std::memcpy(copy.to, copy.from, 16);
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int atomicAdd(int* at, int value) { return std::exchange(*at, *at + value); }
inline unsigned atomicOr(unsigned* at, unsigned value) { return std::exchange(*at, *at | value); }

inline float convoy_from_half(unsigned short bits) {
  const unsigned sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  const float value = std::ldexp(static_cast<float>(rest < 0x400u ? rest : (rest & 0x3ffu) | 0x400u),
                                 static_cast<int>(max(rest >> 10, 1u)) - 25);
  return sign ? -value : value;
}
inline unsigned short convoy_to_half(float x) {  // to the nearest, ties to even
  const unsigned sign = std::bit_cast<unsigned>(x) >> 16 & 0x8000u;
  const float size = std::fabs(x);
  unsigned bits;
  if (!(size < 65520.0f)) {
    bits = x == x ? 0x7c00u : 0x7e00u;
  } else {
    int exponent = -99;
    if (size > 0.0f) std::frexp(size, &exponent);
    exponent = max(exponent - 11, -24);  // of the last place
    bits = static_cast<unsigned>(std::nearbyint(std::ldexp(size, -exponent)));
    bits += exponent > -24 ? static_cast<unsigned>(exponent + 24) << 10 : 0u;  // carries into the exponent
  }
  return static_cast<unsigned short>(sign | bits);
}

#endif
