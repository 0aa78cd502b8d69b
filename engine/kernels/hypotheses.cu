// The finished hypotheses of slots, followed back to their first tokens, in rows for the host: what `trace` of
// engine/search/state.py does there, for all that is told in a step. Reference: engine/search/finished.py.
//
// Grid (slots that are told), block THREADS. The arrays of the search are [slots, ...] each, as
// engine.search.state.SearchState says. Columns are followed SPAN at a time, by way of shared memory: a thread goes from
// column to column of one hypothesis, and all threads fetch and write. Differences are doubles, as on the host.
#include "common.cuh"

constexpr int THREADS = 128;
constexpr int MOST = 32;  // beams of a slot
constexpr int SPAN = 64;  // columns that are followed at a time
constexpr int HEAD = 2;   // words of a row before its pool: count, longest
constexpr int END = 3;    // words of each place of the pool: sum, step, coverage

struct Place {
  int token, row;  // of a column; the row is that of the hypothesis then
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    follow_back(const Index* told,                       // [items]: slots
                const Index* tokens, const double* sums, const Index* trail,  // [slots, columns, beams]
                const double* kept_scores, const Index* kept_trail, const Index* kept_steps,  // [slots, beams], as is:
                const float* kept_coverage, const Index* kept_count, const Index* longest,
                const float* reward,  // [slots]: the price of ending, which was for the race only, is given back
                int beams, int columns,
                int reached,      // columns of a row
                Index* rows) {    // [items, HEAD + beams * (END + 2 * reached)]
  __shared__ unsigned char before[SPAN + 1][MOST];  // rows that rows of the column above continue
  __shared__ unsigned char path[MOST][SPAN + 1];
  __shared__ int now[MOST];  // the row of the lowest column that has been followed
  await_inputs();
  const Index slot = told[blockIdx.x], line = slot * beams, table = slot * columns * beams;
  const int count = static_cast<int>(kept_count[slot]);
  Index* head = rows + blockIdx.x * (HEAD + static_cast<Index>(beams) * (END + 2 * reached));
  Index* ends = head + HEAD;
  Place* places = reinterpret_cast<Place*>(ends + beams * END);                       // [beams, reached]
  double* scores = reinterpret_cast<double*>(ends + beams * END) + beams * reached;  // [beams, reached]
  if (threadIdx.x == 0) {
    head[0] = count;
    head[1] = longest[slot];
  }
  for (int one = count * END + threadIdx.x; one < beams * END; one += THREADS) ends[one] = 0;
  int top = -1;  // the last column that any hypothesis has
  for (int one = 0; one < count; one++) top = max(top, static_cast<int>(kept_steps[line + one]));
  for (int one = threadIdx.x; one < count; one += THREADS) {
    const Index step = kept_steps[line + one];
    const double sum = kept_scores[line + one] + static_cast<double>(reward[slot]);
    reinterpret_cast<double*>(ends)[one * END] = sum;
    ends[one * END + 1] = step;
    reinterpret_cast<double*>(ends)[one * END + 2] = static_cast<double>(kept_coverage[line + one]);
    scores[one * reached + step] = sum - (step > 0 ? sums[table + step * beams + kept_trail[line + one]] : 0.0);
  }
  for (int high = top + 1; high > 0; high -= SPAN) {
    // columns `low` to `high - 1` are written, for which that of `low - 1` is followed too
    const int low = max(high - SPAN, 0), first = max(low - 1, 0);
    for (int at = threadIdx.x; at < (high - first) * beams; at += THREADS) {
      const int column = first + at / beams + 1;
      before[at / beams][at % beams] =
          column <= top ? static_cast<unsigned char>(trail[table + static_cast<Index>(column) * beams + at % beams]) : 0;
    }
    __syncthreads();
    for (int one = threadIdx.x; one < count; one += THREADS) {
      const int step = static_cast<int>(kept_steps[line + one]);
      int row = high <= step ? now[one] : 0;
      for (int column = min(step, high - 1); column >= first; column--) {
        row = column == step ? static_cast<int>(kept_trail[line + one]) : before[column - first][row];
        path[one][column - first] = static_cast<unsigned char>(row);
        if (column == low) now[one] = row;
      }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < count * (high - low); at += THREADS) {
      const int one = at / (high - low), column = low + at % (high - low);
      if (column > static_cast<int>(kept_steps[line + one])) continue;
      const int row = path[one][column - first];
      const Index here = table + static_cast<Index>(column) * beams + row;
      places[one * reached + column] = {column > 0 ? static_cast<int>(tokens[here]) : 0, row};
      if (column == 0) continue;
      const double below = column > 1 ? sums[here - row - beams + path[one][column - 1 - first]] : 0.0;
      scores[one * reached + column - 1] = sums[here] - below;
    }
    __syncthreads();  // before the rows are the next columns'
  }
}
