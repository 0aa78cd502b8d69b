// What a selection ranks: candidates, parts of a normaliser, and how what was found of parts of a vocabulary becomes
// one list, which `merge_best` of select.cu and `end_step` of search.cu do.
#pragma once
#include "common.cuh"

constexpr int NOBODY = 0x7fffffff;

struct Best {
  float value;
  int id;
};

__device__ __forceinline__ bool before(Best a, Best b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// A part of a normaliser: sum of exp(x - top). Becomes NaN where a logit is not a number or +inf.
struct Mass {
  float top, sum;
};

__device__ __forceinline__ Mass add(Mass a, Mass b) {
  const float top = fmaxf(a.top, b.top);
  return {top, a.sum * (a.top == top ? 1.0f : expf(a.top - top)) + b.sum * (b.top == top ? 1.0f : expf(b.top - top))};
}

__device__ __forceinline__ Mass warp_add(Mass mass) {
#pragma unroll
  for (int step = WARP / 2; step > 0; step /= 2)
    mass = add(mass, {__shfl_xor_sync(ALL, mass.top, step), __shfl_xor_sync(ALL, mass.sum, step)});
  return mass;
}

// A forced token's own score; nothing else is possible. Thread `me` of some, for all of which it is the same.
__device__ __forceinline__ void force(const Element* logits, int only, float norm, float penalty, int k, float* scores,
                                      Index* ids, int me, int threads) {
  for (int j = me; j < k; j += threads) {
    float score = LOWEST;
    if (j == 0 && norm > LOWEST && norm < -LOWEST && only >= 0) {
      const float logit = widen(logits[only]) - penalty;
      score = logit == logit ? logit - norm : LOWEST;
    }
    scores[j] = score;
    ids[j] = only >= 0 ? only : 0;
  }
}

// What `select_best` leaves of rows whose vocabulary it scanned in several parts, of at most WARP.
struct Scanned {
  const Element* logits;      // [rows, vocab]
  const Index* forced;        // [rows]; -1: free
  const float* unk_penalty;   // [rows / beams]
  const float* eos_penalty;
  const float* scores;        // [rows, parts, k]: logits after penalties, in order; -inf: none
  const Index* ids;
  const Mass* masses;         // [rows, parts]
  int beams, vocab, unk, eos, k, parts;

  // one of a row's candidates; those that are nobody have names of their own
  __device__ __forceinline__ Best candidate(Index row, int at) const {
    const float value = scores[row * parts * k + at];
    const int id = static_cast<int>(ids[row * parts * k + at]);
    return {value, value > LOWEST ? id : NOBODY - parts * k + at};
  }
};

// What a lane of a warp that merges a row reads of it beside its candidates.
struct Merging {
  Mass mass;
  float unk_penalty, eos_penalty;
  int only;

  __device__ __forceinline__ Merging(const Scanned& of, Index row)
      : mass{LOWEST, 0.0f}, unk_penalty(of.unk_penalty[row / of.beams]), eos_penalty(of.eos_penalty[row / of.beams]),
        only(static_cast<int>(of.forced[row])) {
    const int lane = threadIdx.x % WARP;
    if (lane < of.parts) mass = of.masses[row * of.parts + lane];
  }

  // The row's k best, by a warp: each lane has a part's list, and the best of those that lie foremost is taken k times.
  // candidates [parts, k] is shared memory.
  __device__ __forceinline__ void write(const Scanned& of, Index row, const Best* candidates, float* scores,
                                        Index* ids) const {
    constexpr int NOTHING = NOBODY - 4096;  // a list that has ended; no other name is near
    const int lane = threadIdx.x % WARP;
    const Mass all = warp_add(mass);
    const float norm = all.top + logf(all.sum);
    if (only >= 0 || !(norm > LOWEST && norm < -LOWEST)) {
      const float penalty = (only == of.unk ? unk_penalty : 0.0f) + (only == of.eos ? eos_penalty : 0.0f);
      return force(of.logits + row * of.vocab, only, norm, penalty, of.k, scores, ids, lane, WARP);
    }
    const Best* list = candidates + lane * of.k;
    int left = lane < of.parts ? of.k : 0;
    Best head = left > 0 ? *list : Best{LOWEST, NOTHING - lane};
    for (int j = 0; j < of.k; j++) {
      Best best = head;
#pragma unroll
      for (int step = WARP / 2; step > 0; step /= 2) {
        const unsigned id = __shfl_xor_sync(ALL, static_cast<unsigned>(best.id), step);
        const Best other{__shfl_xor_sync(ALL, best.value, step), static_cast<int>(id)};
        if (before(other, best)) best = other;
      }
      if (best.id == head.id && left > 0) head = --left > 0 ? *++list : Best{LOWEST, NOTHING - lane};
      if (lane != 0) continue;
      const bool some = best.value > LOWEST;
      scores[j] = some ? best.value - norm : LOWEST;
      ids[j] = some ? best.id : 0;
    }
  }
};
