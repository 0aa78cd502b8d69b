// Ranking of candidates: order, parts of a normaliser, and the merge of candidates of several parts of the vocabulary into
// one list, for `merge_best` of select.cu and `end_step` of search.cu.
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

// A part of a normaliser: sum of exp(x - top). It is NaN if a logit is NaN or +inf.
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

// The k scores of a row without a normaliser, where no token is possible, or of a row with a forced token: only
// this token is possible, with its own score.
struct Ending {
  float norm, penalty;  // penalty: penalty of the forced token
  int only;             // the forced token, or -1

  __device__ __forceinline__ bool free() const { return only < 0 && norm > LOWEST && norm < -LOWEST; }
  __device__ __forceinline__ void force(const Element* logits, int place, float& score, Index& id) const {
    score = LOWEST;
    if (place == 0 && norm > LOWEST && norm < -LOWEST && only >= 0) {
      const float logit = widen(logits[only]) - penalty;
      score = logit == logit ? logit - norm : LOWEST;
    }
    id = only >= 0 ? only : 0;
  }
};

// Result of `select_best` for rows whose vocabulary was scanned in several parts, at most WARP.
struct Scanned {
  const Element* logits;      // [rows, vocab]
  const Index* forced;        // [rows]; -1: free
  const float* unk_penalty;   // [rows / beams]
  const float* eos_penalty;
  const float* scores;        // [rows, parts, k]: logits after penalties, sorted; -inf: missing
  const Index* ids;
  const Mass* masses;         // [rows, parts]
  int beams, vocab, unk, eos, k, parts;

  // a candidate of a row; missing ones have unique ids
  __device__ __forceinline__ Best candidate(Index row, int at) const {
    const float value = scores[row * parts * k + at];
    const int id = static_cast<int>(ids[row * parts * k + at]);
    return {value, value > LOWEST ? id : NOBODY - parts * k + at};
  }
};

// The k best of all parts of a row by one warp: each lane has the list of a part, and the best first entry is taken k times.
// candidates [parts, k] is shared memory. Scores stay logits.
__device__ __forceinline__ void merge(const Scanned& of, const Best* candidates, float* scores, Index* ids) {
  constexpr int NOTHING = NOBODY - 4096;  // id of an exhausted list, unlike all other ids
  const int lane = threadIdx.x % WARP;
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
    scores[j] = best.value;
    ids[j] = best.value > LOWEST ? best.id : 0;
  }
}

// Values that a lane loads to compute scores of a row.
struct Reading {
  Mass mass;
  float unk_penalty, eos_penalty;
  int only;

  __device__ __forceinline__ Reading(const Scanned& of, Index row)
      : mass{LOWEST, 0.0f}, unk_penalty(of.unk_penalty[row / of.beams]), eos_penalty(of.eos_penalty[row / of.beams]),
        only(static_cast<int>(of.forced[row])) {
    if (static_cast<int>(threadIdx.x % WARP) < of.parts) mass = of.masses[row * of.parts + threadIdx.x % WARP];
  }
  __device__ __forceinline__ Ending ending(const Scanned& of) const {
    const Mass all = warp_add(mass);
    const float penalty = (only == of.unk ? unk_penalty : 0.0f) + (only == of.eos ? eos_penalty : 0.0f);
    return {all.top + logf(all.sum), penalty, only};
  }
};

// Convert the merged logit at a place of a row to its score.
__device__ __forceinline__ void finish(const Scanned& of, Index row, const Ending& ending, int place, float& score,
                                       Index& id) {
  if (!ending.free()) return ending.force(of.logits + row * of.vocab, place, score, id);
  if (score > LOWEST) score -= ending.norm;
}
