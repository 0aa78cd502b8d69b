// The k best allowed tokens of each row with their log-probabilities, reading the logits once: log-softmax, penalties on two
// tokens, forced or banned tokens, top-k. Bans never renormalise; NaN is impossible (-inf). Of equal scores the lower id
// comes first. Reference: models/select.py.
//
// Grid (rows, parts of the vocabulary), block of whole warps, at least k threads. With few rows there are several parts, so
// that all multiprocessors read, and `merge_best` merges them. Within a part a thread scans every blockDim-th vector, its
// column, and keeps the column's best token and its part of the normaliser. The k best tokens of the row are in the columns
// with the k best first tokens, and none comes after the last of these; so only these columns are read again, from the
// cache, and only slightly more than k tokens are ranked.
#include "ranked.cuh"

constexpr int ROOM = 1024;  // candidates that are ranked at once; more need several passes
// Number of entries of a sorted list before a candidate, at most `most`.
__device__ __forceinline__ int ahead_in(const Best* list, int length, Best one, int most) {
  int count = 0;
  while (count < length && count < most && before(list[count], one)) count++;
  return count;
}

struct Row {
  const Element* logits;
  const unsigned* barred;  // a bit for each token
  float unk_penalty, eos_penalty;
  int end, unk, eos;  // end: end of the part

  // a logit after penalties; -inf: not allowed
  __device__ __forceinline__ float value(float logit, int id) const {
    if (id == unk) logit -= unk_penalty;
    if (id == eos) logit -= eos_penalty;
    return logit == logit && !(barred[id / 32] >> (id % 32) & 1u) ? logit : LOWEST;
  }
};

// The best token of a row after `last`, for all threads; room [blockDim] is shared memory.
__device__ Best next(const Row& row, int begin, Best last, Best* room) {
  Best mine{LOWEST, NOBODY};
  for (int id = begin + threadIdx.x; id < row.end; id += blockDim.x) {
    const Best found{row.value(widen(row.logits[id]), id), id};
    if (found.value > LOWEST && before(last, found) && before(found, mine)) mine = found;
  }
  room[threadIdx.x] = mine;
  __syncthreads();
  for (int other = 0; other < static_cast<int>(blockDim.x); other++)
    if (before(room[other], mine)) mine = room[other];
  __syncthreads();
  return mine;
}

// Write the first k candidates in order; missing ones are impossible.
__device__ void rank(const Best* candidates, int count, float norm, int k, float* scores, Index* ids) {
  for (int j = threadIdx.x; j < count; j += blockDim.x) {
    int ahead = 0;
    for (int other = 0; other < count; other++) ahead += before(candidates[other], candidates[j]);
    if (ahead < k) {
      scores[ahead] = candidates[j].value - norm;
      ids[ahead] = candidates[j].id;
    }
  }
  for (int j = count + threadIdx.x; j < k; j += blockDim.x) {
    scores[j] = LOWEST;
    ids[j] = 0;
  }
}

extern "C" __global__ void __launch_bounds__(1024, 1)
    select_best(const Element* logits,  // [rows, vocab]
                const Index* forced,    // [rows]; -1: free
                const Index* banned,    // [rows, bans]
                const float* unk_penalty,
                const float* eos_penalty,  // [rows / beams]
                int beams, int vocab, int bans, int unk, int eos, int k,
                float* scores,     // [rows, parts, k]: log-probabilities with one part, otherwise logits
                Index* ids,        // [rows, parts, k]
                Mass* masses) {    // [rows, parts], with several parts
  CONVOY_SHARED(Best, best);                          // [blockDim]: best token of each column
  Best* candidates = best + blockDim.x;               // [ROOM]
  int* columns = reinterpret_cast<int*>(candidates + ROOM);  // [k]: columns with the k best first tokens
  unsigned* barred = reinterpret_cast<unsigned*>(columns + k);
  __shared__ Mass warps[WARP];
  __shared__ int count;
  await_inputs();
  const int threads = blockDim.x, me = threadIdx.x, slot = blockIdx.x / beams, parts = gridDim.y;
  const int share = (vocab + parts * VECTOR - 1) / (parts * VECTOR) * VECTOR;
  const int begin = blockIdx.y * share, end = min(begin + share, vocab);
  const Index line = blockIdx.x, place_of_part = line * parts + blockIdx.y;
  const Row row{logits + line * vocab, barred, unk_penalty[slot], eos_penalty[slot], end, unk, eos};
  scores += place_of_part * k;
  ids += place_of_part * k;

  const int first = begin + me * VECTOR, step = threads * VECTOR;
  float x[VECTOR] = {};
  if (first < end) load(row.logits + first, x);  // loaded while bans are read
  for (int word = begin / 32 + me; word < (end + 31) / 32; word += threads) barred[word] = 0;
  if (me == 0) count = 0;
  __syncthreads();
  for (int ban = me; ban < bans; ban += threads) {
    const int id = static_cast<int>(banned[line * bans + ban]);
    if (id >= begin && id < end) atomicOr(&barred[id / 32], 1u << (id % 32));
  }
  __syncthreads();

  Mass mass{LOWEST, 0.0f};
  Best mine{LOWEST, NOBODY - threads + me};  // among empty columns the first is better
  const float unk_bonus = fmaxf(-row.unk_penalty, 0.0f), eos_bonus = fmaxf(-row.eos_penalty, 0.0f);
  for (int at = first; at < end; at += step) {
    float ahead[VECTOR] = {}, most = x[0];
    if (at + step < end) load(row.logits + at + step, ahead);
#pragma unroll
    for (int i = 1; i < VECTOR; i++) most = fmaxf(most, x[i]);  // ignores NaN
    if (most > mass.top) {
      mass.sum *= expf(mass.top - most);
      mass.top = most;
    }
    const float top = mass.top > LOWEST ? mass.top : 0.0f;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) mass.sum += expf(x[i] - top);
    if (!(most + unk_bonus + eos_bonus <= mine.value))  // otherwise none of them can be better
#pragma unroll
      for (int i = 0; i < VECTOR; i++) {
        const Best found{row.value(x[i], at + i), at + i};
        if (found.value > mine.value) mine = found;
      }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) x[i] = ahead[i];
  }
  mass = warp_add(mass);
  if (me % WARP == 0) warps[me / WARP] = mass;
  best[me] = mine;
  __syncthreads();
  const auto whole = [&] { return warp_add(me % WARP < threads / WARP ? warps[me % WARP] : Mass{LOWEST, 0.0f}); };
  float norm = 0;
  if (parts == 1) {
    mass = whole();
    norm = mass.top + logf(mass.sum);
    const int only = static_cast<int>(forced[line]);
    const float penalty = (only == unk ? row.unk_penalty : 0.0f) + (only == eos ? row.eos_penalty : 0.0f);
    const Ending ending{norm, penalty, only};
    if (!ending.free()) {
      for (int j = me; j < k; j += threads) ending.force(row.logits, j, scores[j], ids[j]);
      return;
    }
  }

  // rank the columns of a warp, then count those of other warps before each of its first k
  const int warp = me / WARP;
  int column = 0;
  for (int lane = 0; lane < WARP; lane++) column += before(best[warp * WARP + lane], mine);
  candidates[warp * WARP + column] = mine;
  __syncthreads();
  for (int other = 0; other < threads / WARP && column < k; other++)
    if (other != warp) column += ahead_in(candidates + other * WARP, WARP, mine, k - column);
  if (column < k) columns[column] = me;
  __syncthreads();
  const Best last = best[columns[k - 1]];  // no token after it is among the k best; may be empty
  const int length = (end - begin + threads * VECTOR - 1) / (threads * VECTOR);  // a last part may be empty
  for (int item = me; item < k * length; item += threads) {
    const int at = begin + (item % length * threads + columns[item / length]) * VECTOR;
    if (at >= end) continue;
    float x[VECTOR];
    load(row.logits + at, x);
    for (int i = 0; i < VECTOR; i++) {
      const Best found{row.value(x[i], at + i), at + i};
      if (!(found.value > LOWEST) || before(last, found)) continue;
      const int place = atomicAdd(&count, 1);
      if (place < ROOM) candidates[place] = found;
    }
  }
  __syncthreads();

  if (parts > 1 && me >= threads - WARP) {  // a warp with few candidates to rank
    mass = whole();
    if (me == threads - WARP) masses[place_of_part] = mass;
  }
  if (count <= ROOM) return rank(candidates, count, norm, k, scores, ids);
  Best given{-LOWEST, -1};
  for (int j = 0; j < k; j++) {
    given = next(row, begin, given, best);
    if (me == 0) {
      scores[j] = given.id == NOBODY ? LOWEST : given.value - norm;
      ids[j] = given.id == NOBODY ? 0 : given.id;
    }
  }
}

// The k best of all parts of each row. Grid (rows), block of whole warps; the first merges, the last sums the normaliser.
extern "C" __global__ void __launch_bounds__(256, 1)
    merge_best(const Element* logits, const Index* forced, const float* unk_penalty, const float* eos_penalty,
               const float* part_scores, const Index* part_ids, const Mass* masses, int beams, int vocab, int unk, int eos,
               int k, int parts, float* scores, Index* ids) {  // [rows, k]
  CONVOY_SHARED(Best, candidates);  // [parts, k]
  __shared__ Ending ending;
  await_inputs();
  const Index row = blockIdx.x;
  const int me = threadIdx.x, last = blockDim.x - WARP;
  const Scanned of{logits, forced, unk_penalty, eos_penalty, part_scores, part_ids, masses,
                   beams,  vocab,  unk,         eos,         k,           parts};
  const Reading reading(of, row);
  for (int at = me; at < parts * k; at += blockDim.x) candidates[at] = of.candidate(row, at);
  __syncthreads();
  if (me < WARP) merge(of, candidates, scores + row * k, ids + row * k);
  if (me >= last) {
    const Ending found = reading.ending(of);
    if (me == last) ending = found;
  }
  __syncthreads();
  for (int j = me; j < k; j += blockDim.x) finish(of, row, ending, j, scores[row * k + j], ids[row * k + j]);
}
