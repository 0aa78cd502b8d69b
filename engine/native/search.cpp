// The host's work around a step's graph, for plain beam search and greedy search. It equals engine/search/beam.py and
// engine/executors/history.py bit for bit, on the same arrays. engine/executors/onnx/native_step.py calls it through
// ctypes; engine/native/step_arrays.py declares the same structures.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace {

constexpr double NEG = -std::numeric_limits<double>::infinity();

// One ring or cache of a lane and the column [n, beams, dim] that a step adds to it.
struct Held {
  float* data;  // a ring [slots, window, beams, dim], or a cache [slots, heads, columns, beams, dim / heads]
  const float* column;
  int64_t window, dim, heads;  // heads is 0 for a ring
};

// The rows [slots, beams, window] that the layers of a window read from their rings.
struct Index {
  int64_t* rows;
  int64_t window;
};

struct Step {
  int64_t beams, state_columns, candidates, pad, eos;  // candidates: number per row in the graph's outputs
  // state of the search (engine/search/state.py)
  int64_t* tokens;
  double* scores;
  int64_t* trail;
  double* kept_scores;
  int64_t *kept_trail, *kept_steps, *kept_count;
  bool* done;
  int64_t *step, *current, *parents;
  double* total;
  int64_t *plan, *free, *width, *shortest, *longest;
  bool* narrowing;
  float *temperature, *unk_penalty, *word_reward;
  int64_t* taken;  // number of steps of each slot
  // the graph's inputs and outputs
  int64_t *fed_tokens, *fed_positions, *fed_forced, *fed_banned;
  float *fed_temperature, *fed_unk_penalty, *fed_eos_penalty;
  const float* best;
  const int64_t* ids;
  // the history
  int64_t *ancestors, memory_of_ancestors;  // [slots, beams, memory_of_ancestors]
  Index* indices;
  int64_t index_count;
  Held* held;
  int64_t held_count;
  int64_t *writers, cache_columns;  // [slots, beams, columns]
  float* lineage;                   // [n, beams, columns * beams]
};

// Advances the ancestors by a step, and writes the rows of the rings that each window reads.
void follow(const Step& s, int64_t slot, int64_t clock, std::vector<int64_t>& before) {
  const int64_t b = s.beams, back = s.memory_of_ancestors;
  int64_t* ancestors = s.ancestors + slot * b * back;
  const int64_t* parents = s.parents + slot * b;
  before.assign(ancestors, ancestors + b * back);
  for (int64_t i = 0; i < b; i++) {
    std::copy_n(&before[static_cast<size_t>(parents[i] * back + 1)], back - 1, ancestors + i * back);
    ancestors[i * back + back - 1] = parents[i];
  }
  for (int64_t w = 0; w < s.index_count; w++) {
    const int64_t window = s.indices[w].window;
    int64_t* rows = s.indices[w].rows + slot * b * window;
    for (int64_t i = 0; i < b; i++) {
      int64_t phase = clock % window;
      for (int64_t age = 0; age < window; age++) {
        rows[i * window + age] = ancestors[i * back + back - window + age] + slot * window * b + phase * b;
        phase = phase + 1 == window ? 0 : phase + 1;
      }
    }
  }
}

// Advances the writers of the caches by a step, and sets the lineage to 0 at each row's own entries.
void follow_caches(const Step& s, int64_t slot, std::vector<int64_t>& before) {
  const int64_t b = s.beams, columns = s.cache_columns, position = s.step[slot];
  int64_t* writers = s.writers + slot * b * columns;
  const int64_t* parents = s.parents + slot * b;
  before.assign(writers, writers + b * columns);
  float* lineage = s.lineage + slot * b * columns * b;
  std::fill_n(lineage, b * columns * b, -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < b; i++) {
    std::copy_n(&before[static_cast<size_t>(parents[i] * columns)], columns, writers + i * columns);
    writers[i * columns + (position > 0 ? position - 1 : 0)] = parents[i];
    for (int64_t c = 0; c < std::min(position, columns); c++) lineage[(i * columns + c) * b + writers[i * columns + c]] = 0.0f;
  }
}

void feed(const Step& s, int64_t slot) {
  const int64_t b = s.beams, step = s.step[slot];
  const int64_t forced = s.plan[slot * s.state_columns + step], banned = step < s.shortest[slot] ? s.eos : s.pad;
  s.fed_positions[slot] = step;
  s.fed_temperature[slot] = s.temperature[slot];
  s.fed_unk_penalty[slot] = s.unk_penalty[slot];
  s.fed_eos_penalty[slot] = s.word_reward[slot];
  for (int64_t i = slot * b; i < (slot + 1) * b; i++) {
    s.fed_tokens[i] = s.current[i];
    s.fed_forced[i] = forced;
    s.fed_banned[2 * i] = s.pad;
    s.fed_banned[2 * i + 1] = banned;
  }
}

void remember(const Held& h, const Step& s, int64_t slot, int64_t clock) {
  const int64_t size = s.beams * h.dim;
  const float* column = h.column + slot * size;
  if (!h.heads) {
    std::copy_n(column, size, h.data + (slot * h.window + clock % h.window) * size);
    return;
  }
  const int64_t width = h.dim / h.heads, at = s.step[slot];
  for (int64_t head = 0; head < h.heads; head++)
    for (int64_t i = 0; i < s.beams; i++)
      std::copy_n(column + i * h.dim + head * width, width,
                  h.data + (((slot * h.heads + head) * s.cache_columns + at) * s.beams + i) * width);
}

struct Candidate {
  double score;
  int64_t token, parent;
};

// Finds the 2B best continuations of all rows. Ties go to the earlier row, then to the better rank.
void best_of(const Step& s, int64_t slot, std::vector<Candidate>& best) {
  const int64_t b = s.beams, k = std::min(2 * b, s.candidates);
  // forced tokens of a free prefix cost nothing, like the end at Marian's length limit
  const bool free = s.step[slot] < s.free[slot] || (s.narrowing[slot] && s.step[slot] >= s.longest[slot]);
  best.clear();
  for (int64_t row = 0; row < b; row++)
    for (int64_t rank = 0; rank < k; rank++) {
      const int64_t at = (slot * b + row) * s.candidates + rank;
      const double alone = free ? (rank ? NEG : 0.0) : static_cast<double>(s.best[at]);
      const double sum = s.total[slot * b + row] + alone;
      const double score = sum == sum ? sum : NEG;
      const bool full = best.size() == static_cast<size_t>(2 * b);
      if (full && !(score > best.back().score)) continue;
      if (full) best.pop_back();
      auto place = best.end();
      while (place != best.begin() && (place - 1)->score < score) --place;
      best.insert(place, {score, s.ids[at], row});
    }
}

// Updates a slot by its candidates, like `BeamSearch._collect_finished` and `_continue`.
void absorb(const Step& s, int64_t slot, std::vector<Candidate>& best, std::vector<int64_t>& order) {
  const int64_t b = s.beams, width = s.width[slot], step = s.step[slot];
  best_of(s, slot, best);
  const int64_t room = width - (s.narrowing[slot] ? s.kept_count[slot] : 0);
  auto ends = [&](int64_t rank) {
    const Candidate& c = best[static_cast<size_t>(rank)];
    return c.token == s.eos && c.score > NEG;
  };
  for (int64_t rank = 0; rank < std::min(b, room) && !s.done[slot]; rank++)
    if (ends(rank) && s.kept_count[slot] < width) {
      const int64_t place = slot * b + s.kept_count[slot]++;
      const Candidate& c = best[static_cast<size_t>(rank)];
      s.kept_scores[place] = c.score;
      s.kept_trail[place] = c.parent;
      s.kept_steps[place] = step;
    }
  auto ended = [&](int64_t rank) { return ends(rank) || (s.narrowing[slot] && rank >= room); };
  auto passed = [&](int64_t rank) { return ended(rank) || rank >= 2 * width; };
  order.clear();
  for (bool last : {false, true})
    for (int64_t rank = 0; rank < 2 * b; rank++)
      if (passed(rank) == last) order.push_back(rank);
  const int64_t column = (slot * s.state_columns + step + 1) * b;
  for (int64_t i = 0; i < b; i++) {
    const int64_t rank = order[static_cast<size_t>(i)];
    const Candidate& c = best[static_cast<size_t>(rank)];
    const double score = i < width && !ended(rank) ? c.score : NEG;
    s.tokens[column + i] = s.current[slot * b + i] = c.token;
    s.scores[column + i] = s.total[slot * b + i] = score;
    s.trail[column + i] = s.parents[slot * b + i] = c.parent;
  }
  s.done[slot] = s.done[slot] || step >= s.longest[slot] || s.kept_count[slot] >= width;
  s.step[slot] += !s.done[slot];
  s.taken[slot]++;
}

}  // namespace

#define CONVOY_FACE extern "C" __attribute__((visibility("default")))

// engine/native/step_arrays.py compares these: a version, to be increased with any change of a field, and sizes.
CONVOY_FACE const int64_t convoy_step_layout[] = {1, sizeof(Step), sizeof(Held), sizeof(Index)};

// Called before a step of slots 0..n-1: writes the inputs of the graph, and the positions of each row's past.
CONVOY_FACE void convoy_prepare(const Step* s, int64_t n, int64_t clock) {
  std::vector<int64_t> before;
  for (int64_t slot = 0; slot < n; slot++) {
    feed(*s, slot);
    follow(*s, slot, clock, before);
    if (s->writers) follow_caches(*s, slot, before);
  }
}

// Called after the graph: stores the new columns in rings and caches.
CONVOY_FACE void convoy_remember(const Step* s, int64_t n, int64_t clock) {
  for (int64_t i = 0; i < s->held_count; i++)
    for (int64_t slot = 0; slot < n; slot++) remember(s->held[i], *s, slot, clock);
}

// Called after the graph: updates the state of the search by the candidates.
CONVOY_FACE void convoy_absorb(const Step* s, int64_t n) {
  std::vector<Candidate> best;
  std::vector<int64_t> order;
  for (int64_t slot = 0; slot < n; slot++) absorb(*s, slot, best, order);
}
