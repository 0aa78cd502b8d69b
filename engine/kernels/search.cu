// The search of a step in two kernels, one before the model and one after its selection: beam search, greedy search and
// sampling. Reference, and implementation of everything else: engine/search/beam.py and
// engine.executors.history.Rings.advance. The arithmetic is the reference's (doubles, in its order), so results are bitwise
// equal.
//
// Grid (slots), block THREADS. The arrays of the search are [slots, ...], see engine.search.state.SearchState.
#include "ranked.cuh"

constexpr int THREADS = 256, WARPS = THREADS / WARP;
constexpr int MOST = 32;  // largest number of beams
#define IMPOSSIBLE (-static_cast<double>(__int_as_float(0x7f800000)))
using Flag = unsigned char;

// Before the model: mark slots from `count` on as idle, write the rules of the step, and rows of rings by ancestors.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    begin_step(const Index* count,    // number of used slots [1]
               const Index* parents,  // [slots, beams]
               const Index* plan,     // [slots, columns]
               const Index* shortest, const Index* clock,
               const Index* windows,  // [kinds, 2]: window and address of its rows [slots, beams, window]
               int beams, int columns, int longest, int kinds, int pad, int eos, Flag* done, Index* step,
               Index* ancestors,         // [slots, beams, longest]
               Index* forced,            // [slots, beams]
               Index* banned) {          // [slots, beams, 2]
  CONVOY_SHARED(Index, followed);  // [beams, longest]
  await_inputs();
  const int slot = blockIdx.x, me = threadIdx.x, warp = me / WARP, lane = me % WARP;
  const Index line = static_cast<Index>(slot) * beams;
  // independent loads first, then those that depend on them
  const Index reached = step[slot], soonest = shortest[slot], tick = *clock;
  Index window = warp < kinds ? windows[2 * warp] : 1, address = warp < kinds ? windows[2 * warp + 1] : 0;
  const bool busy = slot < *count;
  const Index position = busy ? reached : 0, only = plan[static_cast<Index>(slot) * columns + position];
  for (int at = me; at < beams * longest; at += THREADS) {
    const int beam = at / longest, age = at % longest;
    const Index parent = parents[line + beam];
    followed[at] = age + 1 < longest ? ancestors[(line + parent) * longest + age + 1] : parent;
  }
  for (int beam = me; beam < beams; beam += THREADS) {
    forced[line + beam] = only;
    banned[(line + beam) * 2] = pad;
    banned[(line + beam) * 2 + 1] = position < soonest ? eos : pad;
  }
  int phase = static_cast<int>(tick % window);  // a slow division, while parents are loaded
  __syncthreads();
  if (me == 0 && !busy) {
    done[slot] = 1;
    step[slot] = 0;
  }
  for (int at = me; at < beams * longest; at += THREADS) ancestors[line * longest + at] = followed[at];
  for (int kind = warp; kind < kinds; kind += THREADS / WARP) {
    if (kind != warp) {
      window = windows[2 * kind];
      address = windows[2 * kind + 1];
      phase = static_cast<int>(tick % window);
    }
    const int size = static_cast<int>(window);
    Index* rows = reinterpret_cast<Index*>(address) + line * window;
    for (int at = lane; at < beams * size; at += WARP) {
      const int beam = at / size, age = at % size;
      rows[at] = followed[beam * longest + longest - size + age] + (slot * window + (phase + age) % size) * beams;
    }
  }
}

__device__ __forceinline__ unsigned long long scramble(unsigned long long word) {  // splitmix64
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
  return word ^ (word >> 31);
}

// Draw a candidate of a row: engine.search.filters.uniform and draw.
__device__ int drawn(const float* scores, int k, Index seed, int beam, Index step, Index top_k, double top_p) {
  constexpr unsigned long long GAMMA = 0x9E3779B97F4A7C15ull;
  unsigned long long word = scramble(static_cast<unsigned long long>(seed) + GAMMA);
  word = scramble((word ^ static_cast<unsigned long long>(beam)) + GAMMA);
  word = scramble((word ^ static_cast<unsigned long long>(step)) + GAMMA);
  const double chance = static_cast<double>(word >> 11) * 0x1p-53;
  const double best = scores[0] > LOWEST ? static_cast<double>(scores[0]) : 0.0;
  double mass = 0, whole = 0, reached = 0;
  unsigned long long kept = 0;  // a bit for each of at most 64 candidates
  for (int at = 0; at < k; at++) {
    const double own = exp(static_cast<double>(scores[at]));
    mass += own;
    if (at >= top_k || !(mass - own < top_p) || !(scores[at] > LOWEST)) continue;
    kept |= 1ull << at;
    whole += exp(static_cast<double>(scores[at]) - best);
  }
  int index = 0;
  for (int at = 0; at < k && whole > 0; at++) {
    if (kept >> at & 1) reached += exp(static_cast<double>(scores[at]) - best);
    index += reached <= chance * whole && reached < whole;
  }
  return index;
}

struct Candidate {
  double score;
  Index token, parent;
};

// After the selection: the next column of each slot, its finished hypotheses, and whether it is done. If the
// vocabulary was scanned in several parts, a warp for each beam first merges their candidates.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    end_step(const float* scores,  // [slots, beams, k], or those of a partial selection
             const Index* ids,     // likewise
             const Mass* masses, const float* logits, const Index* forced, const float* unk_penalty,
             const float* eos_penalty, int vocab, int unk, int parts,  // arguments of a partial selection
             const Index* width, const Index* longest, const Index* free, const Flag* narrowing, const Flag* sampling,
             const Index* seed, const Index* top_k, const double* top_p, int beams, int k, int columns, int pad, int eos,
             Index* tokens,     // [slots, columns, beams]; so are
             double* sums, Index* trail,
             double* kept_scores,  // [slots, beams]; so are
             Index* kept_trail, Index* kept_steps, double* total, Index* current, Index* parents,
             Index* kept_count,  // [slots]; so are
             Flag* done, Index* step,
             Index* clock) {  // [1], step number of the rings, incremented
  CONVOY_SHARED(double, sorted);  // [beams, 2 * beams]: ranks of candidates, then their tokens;
                                  // with parts: ids [beams, k], candidates [beams, parts, k], scores [beams, k]
  __shared__ Candidate best[2 * MOST];
  __shared__ int order[MOST];
  __shared__ int places[MOST];  // places in the pool of candidates that end; -1: none
  __shared__ bool ended[2 * MOST];
  __shared__ Ending endings[MOST];
  await_inputs();
  const int slot = blockIdx.x, each = 2 * beams, all = beams * each;
  const Index line = static_cast<Index>(slot) * beams;
  Index* token_of = reinterpret_cast<Index*>(sorted + all);
  // load the whole slot at once
  const Index now = step[slot], wide = width[slot], held = kept_count[slot], last = longest[slot], freely = free[slot];
  const bool sampled = sampling[slot] != 0, over = done[slot] != 0, narrows = narrowing[slot] != 0;
  const int first = threadIdx.x;
  const double before_first = first < all ? total[line + first / each] : 0.0;
  const float* own_scores = scores + line * k;
  const Index* own_ids = ids + line * k;
  if (parts > 1) {
    const Scanned of{logits, forced, unk_penalty, eos_penalty, scores, ids, masses, beams, vocab, unk, eos, k, parts};
    const int warp = first / WARP, size = parts * k;
    Index* merged_ids = token_of + all;
    Best* candidates = reinterpret_cast<Best*>(merged_ids + beams * k);
    float* merged_scores = reinterpret_cast<float*>(candidates + beams * size);
    const int ends = (warp + WARPS / 2) % WARPS;  // first row that this warp computes while another merges it
    Reading reading(of, line + min(ends, beams - 1));
    for (int at = first; at < beams * size; at += THREADS)
      candidates[at] = of.candidate(line + at / size, at % size);
    __syncthreads();
    for (int beam = warp; beam < beams; beam += WARPS)
      merge(of, candidates + beam * size, merged_scores + beam * k, merged_ids + beam * k);
    for (int beam = ends; beam < beams; beam += WARPS) {
      if (beam != ends) reading = Reading(of, line + beam);
      const Ending found = reading.ending(of);
      if (first % WARP == 0) endings[beam] = found;
    }
    __syncthreads();
    for (int at = first; at < beams * k; at += THREADS)
      finish(of, line + at / k, endings[at / k], at % k, merged_scores[at], merged_ids[at]);
    __syncthreads();
    own_scores = merged_scores;
    own_ids = merged_ids;
  }
  if (slot == 0 && threadIdx.x == 0) *clock += 1;
  // a forced token without cost: a free prefix, or the end of Marian's length rule
  const bool unpriced = now < freely || (narrows && now >= last);
  const auto score = [&](int beam, int rank) {
    const double own = static_cast<double>(own_scores[beam * k + rank]);
    return unpriced ? (rank == 0 ? 0.0 : IMPOSSIBLE) : own;
  };

  if (sampled) {
    for (int at = threadIdx.x; at < each; at += THREADS) {
      if (at >= beams) {
        best[at] = {IMPOSSIBLE, pad, 0};
        continue;
      }
      const int one = unpriced ? 0 : drawn(own_scores + at * k, k, seed[slot], at, now, top_k[slot], top_p[slot]);
      const double sum = total[line + at] + score(at, one);
      best[at] = {sum == sum ? sum : IMPOSSIBLE, own_ids[at * k + one], at};
    }
  } else {
    for (int at = threadIdx.x; at < all; at += THREADS) {
      token_of[at] = own_ids[at / each * k + at % each];
      const double sum = (at == first ? before_first : total[line + at / each]) + score(at / each, at % each);
      sorted[at] = sum == sum ? sum : IMPOSSIBLE;  // NaN is impossible
    }
    __syncthreads();
    for (int at = threadIdx.x; at < all; at += THREADS) {
      const double mine = sorted[at];
      int rank = 0;
      for (int other = 0; other < all && rank < each; other++)
        rank += sorted[other] > mine || (sorted[other] == mine && other < at);
      if (rank < each) best[rank] = {mine, token_of[at], at / each};
    }
  }
  __syncthreads();

  if (threadIdx.x == 0) {
    const Index room = wide - (narrows ? held : 0);
    Index next = held;
    for (int rank = 0; rank < each; rank++) {
      const bool ends = best[rank].token == eos && best[rank].score > IMPOSSIBLE;
      if (rank < beams) places[rank] = ends && rank < room && !over && next < wide ? static_cast<int>(next++) : -1;
      ended[rank] = ends || (narrows && rank >= room);
    }
    int filled = 0;  // continued hypotheses first, then the others
    for (int left = 0; left < 2 && !sampled; left++)
      for (int rank = 0; rank < each && filled < beams; rank++)
        if ((ended[rank] || rank >= 2 * wide) == (left != 0)) order[filled++] = rank;
    for (int row = 0; row < beams && sampled; row++) order[row] = row;
    kept_count[slot] = next;
    const bool ends = over || now >= last || next >= wide;
    done[slot] = ends;
    step[slot] = now + !ends;
  }
  __syncthreads();

  const Index column = (static_cast<Index>(slot) * columns + now + 1) * beams;
  for (int row = threadIdx.x; row < beams; row += THREADS) {
    if (places[row] >= 0) {
      kept_scores[line + places[row]] = best[row].score;
      kept_trail[line + places[row]] = best[row].parent;
      kept_steps[line + places[row]] = now;
    }
    Candidate one = best[order[row]];
    if (row >= wide || ended[order[row]]) one.score = IMPOSSIBLE;
    tokens[column + row] = current[line + row] = one.token;
    sums[column + row] = total[line + row] = one.score;
    trail[column + row] = parents[line + row] = one.parent;
  }
}
