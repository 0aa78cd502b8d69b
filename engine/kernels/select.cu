// From logits to the k best allowed tokens of each row with their log-probabilities, reading the logits once:
// log-softmax, then penalties on two tokens, then forced else banned, then top-k. Bans never renormalise; what is
// not a number is impossible (-inf). Of equal scores the lower id comes first. Reference: models/select.py.
//
// Grid (rows), block of whole warps, at least k threads. A thread scans every blockDim-th vector of the row: its
// own column. It keeps the column's best token and its part of the normaliser. The k best tokens of the row lie in
// the columns whose best tokens are the k best, none after the last of those; so only these columns are read
// again, from cache, and hardly more than k tokens are ranked.
#include "common.cuh"

constexpr int ROOM = 1024;  // candidates that are ranked; more of them take the slow way
constexpr int NOBODY = 0x7fffffff;

struct Best {
  float value;
  int id;
};

__device__ __forceinline__ bool before(Best a, Best b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// A part of a normaliser: sum of exp(x - top). Becomes NaN where a logit is not a number or +inf twice.
struct Mass {
  float top, sum;
};

__device__ __forceinline__ Mass add(Mass a, Mass b) {
  const float top = fmaxf(a.top, b.top);
  return {top, a.sum * (a.top == top ? 1.0f : expf(a.top - top)) + b.sum * (b.top == top ? 1.0f : expf(b.top - top))};
}

struct Row {
  const Element* logits;
  const unsigned* barred;  // a bit for each token
  float unk_penalty, eos_penalty;
  int vocab, unk, eos;

  // a logit after penalties; -inf: not to be chosen
  __device__ __forceinline__ float value(float logit, int id) const {
    if (id == unk) logit -= unk_penalty;
    if (id == eos) logit -= eos_penalty;
    return logit == logit && !(barred[id / 32] >> (id % 32) & 1u) ? logit : LOWEST;
  }
};

// The best token of a row that comes after `last`, for all threads; room [blockDim] is shared memory.
__device__ Best next(const Row& row, Best last, Best* room) {
  Best mine{LOWEST, NOBODY};
  for (int id = threadIdx.x; id < row.vocab; id += blockDim.x) {
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

extern "C" __global__ void select_best(const Element* __restrict__ logits,  // [rows, vocab]
                                  const Index* __restrict__ forced,    // [rows]; -1: free
                                  const Index* __restrict__ banned,    // [rows, bans]
                                  const float* __restrict__ unk_penalty,
                                  const float* __restrict__ eos_penalty,  // [rows / beams]
                                  int beams, int vocab, int bans, int unk, int eos, int k,
                                  float* __restrict__ scores,   // [rows, k]
                                  Index* __restrict__ ids) {    // [rows, k]
  CONVOY_SHARED(Best, best);                          // [blockDim]: of each column
  Best* candidates = best + blockDim.x;               // [ROOM]
  int* columns = reinterpret_cast<int*>(candidates + ROOM);  // [k]: where the k best columns' best tokens are
  unsigned* barred = reinterpret_cast<unsigned*>(columns + k);
  __shared__ Mass masses[WARP];
  __shared__ int count;
  const int threads = blockDim.x, me = threadIdx.x, slot = blockIdx.x / beams;
  const Index line = blockIdx.x;
  const Row row{logits + line * vocab, barred, unk_penalty[slot], eos_penalty[slot], vocab, unk, eos};
  scores += line * k;
  ids += line * k;

  for (int word = me; word < (vocab + 31) / 32; word += threads) barred[word] = 0;
  if (me == 0) count = 0;
  __syncthreads();
  for (int ban = me; ban < bans; ban += threads) {
    const int id = static_cast<int>(banned[line * bans + ban]);
    atomicOr(&barred[id / 32], 1u << (id % 32));
  }
  __syncthreads();

  Mass mass{LOWEST, 0.0f};
  Best mine{LOWEST, NOBODY};
  for (int at = me * VECTOR; at < vocab; at += threads * VECTOR) {
    float x[VECTOR];
    load(row.logits + at, x);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
      if (x[i] > mass.top) {
        mass.sum = mass.sum * expf(mass.top - x[i]) + 1.0f;
        mass.top = x[i];
      } else if (x[i] != LOWEST) {
        mass.sum += expf(x[i] - mass.top);
      }
      const Best found{row.value(x[i], at + i), at + i};
      if (found.value > mine.value) mine = found;
    }
  }
#pragma unroll
  for (int step = WARP / 2; step > 0; step /= 2)
    mass = add(mass, {__shfl_xor_sync(ALL, mass.top, step), __shfl_xor_sync(ALL, mass.sum, step)});
  if (me % WARP == 0) masses[me / WARP] = mass;
  best[me] = mine;
  __syncthreads();
  mass = masses[0];
  for (int w = 1; w < threads / WARP; w++) mass = add(mass, masses[w]);
  const float norm = mass.top + logf(mass.sum);
  const bool possible = norm > LOWEST && norm < -LOWEST;

  const int only = static_cast<int>(forced[line]);
  if (only >= 0 || !possible) {  // the same for all threads of the block
    for (int j = me; j < k; j += threads) {
      float score = LOWEST;
      if (j == 0 && possible) {
        float logit = widen(row.logits[only]);
        if (only == unk) logit -= row.unk_penalty;
        if (only == eos) logit -= row.eos_penalty;
        score = logit == logit ? logit - norm : LOWEST;
      }
      scores[j] = score;
      ids[j] = only >= 0 ? only : 0;
    }
    return;
  }

  int rank = 0;
  for (int other = 0; other < threads; other++) {
    const bool both_empty = mine.id == NOBODY && best[other].id == NOBODY;
    rank += both_empty ? other < me : before(best[other], mine);
  }
  if (rank < k) columns[rank] = me;
  __syncthreads();
  const Best last = best[columns[k - 1]];  // none after it is among the k best; it may be nobody
  const int length = (vocab + threads * VECTOR - 1) / (threads * VECTOR);
  for (int item = me; item < k * length; item += threads) {
    const int at = (item % length * threads + columns[item / length]) * VECTOR;
    if (at >= vocab) continue;
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

  if (count <= ROOM) {
    for (int j = me; j < count; j += threads) {
      int ahead = 0;
      for (int other = 0; other < count; other++) ahead += before(candidates[other], candidates[j]);
      if (ahead < k) {
        scores[ahead] = candidates[j].value - norm;
        ids[ahead] = candidates[j].id;
      }
    }
    for (int j = count + me; j < k; j += threads) {
      scores[j] = LOWEST;
      ids[j] = 0;
    }
    return;
  }
  Best given{-LOWEST, -1};
  for (int j = 0; j < k; j++) {
    given = next(row, given, best);
    if (me == 0) {
      scores[j] = given.id == NOBODY ? LOWEST : given.value - norm;
      ids[j] = given.id == NOBODY ? 0 : given.id;
    }
  }
}
