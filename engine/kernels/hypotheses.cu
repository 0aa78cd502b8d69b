// Follow the finished hypotheses of slots back to their first tokens and write them in rows for the host, for all slots whose
// results are fetched in a step. Reference: engine/search/finished.py, with `trace` of engine/search/state.py.
//
// Grid (fetched slots), block THREADS. The arrays of the search are [slots, ...], see engine.search.state.SearchState.
// Columns are followed SPAN at a time through shared memory: one thread follows one hypothesis from column to column, and
// all threads load and store. Differences are doubles, as on the host.
#include "common.cuh"

constexpr int THREADS = 128;
constexpr int MOST = 32;  // largest number of beams
constexpr int SPAN = 64;  // columns that are followed at once
constexpr int HEAD = 2;   // words of a row before its pool: count, longest
constexpr int END = 3;    // words of each place of the pool: sum, step, coverage

struct Place {
  int token, row;  // of a column, with the hypothesis's row there
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    follow_back(const Index* told,                       // slots [items]
                const Index* tokens, const double* sums, const Index* trail,  // [slots, columns, beams]
                const double* kept_scores, const Index* kept_trail, const Index* kept_steps,  // [slots, beams], and
                const float* kept_coverage, const Index* kept_count, const Index* longest,
                const float* reward,  // [slots]: price of ending during the search, returned here
                int beams, int columns,
                int reached,      // columns of a row
                Index* rows) {    // [items, HEAD + beams * (END + 2 * reached)]
  __shared__ unsigned char before[SPAN + 1][MOST];  // for each row of a column, the row that it continues
  __shared__ unsigned char path[MOST][SPAN + 1];
  __shared__ int now[MOST];  // row of each hypothesis in the lowest followed column
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
  int top = -1;  // last column of the longest hypothesis
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
    // columns `low` to `high - 1` are written, which needs column `low - 1` too
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
    __syncthreads();  // before the buffers are reused
  }
}
