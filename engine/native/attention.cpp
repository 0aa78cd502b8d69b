// Operators of attention over a source and over a hypothesis's past. engine/kernels/reference.py defines their results.
#include <algorithm>

#include "run.h"

namespace convoy {
namespace {

// Queries q [slots, queries, D], which are scaled first, keys [slots, heads, width, time], values [slots, heads, time,
// width], mask [slots, time] -> context [slots, queries, D] and weights [slots, queries, time], the mean over the first
// `shown` heads, or over all.
struct Attend {
  static constexpr const char* NAME = "Attend";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT, ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 4;

  explicit Attend(const Attributes& a) : scale(a.real("scale")), shown(static_cast<size_t>(a.whole("shown", 0))) {}

  void run(const Run& run) {
    const Tensor q = run.input(0), keys = run.input(1), values = run.input(2), mask = run.input(3);
    const size_t slots = static_cast<size_t>(q.shape[0]), queries = static_cast<size_t>(q.shape[1]), dim = q.last();
    const size_t heads = static_cast<size_t>(keys.shape[1]), width = dim / heads, time = keys.last();
    const size_t told = shown ? shown : heads;
    const Tensor context = run.output(0, q.shape);
    const Tensor mean = run.output(1, {q.shape[0], q.shape[1], static_cast<int64_t>(time)});
    run.each(slots, 4 * slots * queries * dim * time, [&](size_t from, size_t until) {
      float* weights = scratch<Attend, float>(queries * (time + dim));
      float* scaled = weights + queries * time;
      for (size_t s = from; s < until; s++) {
        for (size_t i = 0; i < queries * dim; i++) scaled[i] = scale * q.as<float>()[s * queries * dim + i];
        const float* hidden = mask.as<float>() + s * time;
        size_t length = time;  // padding is skipped
        while (length > 1 && hidden[length - 1] < -1e30f) length--;
        if (mean.data) std::fill_n(mean.as<float>() + s * queries * time, queries * time, 0.0f);
        for (size_t h = 0; h < heads; h++) {
          const size_t at = s * queries * dim + h * width, memory = (s * heads + h) * width * time;
          const Heads head{keys.as<float>() + memory, values.as<float>() + memory, hidden, width, time, length, dim};
          chosen().attend(head, scaled + h * width, queries, weights, context.as<float>() + at);
          for (size_t i = 0; mean.data && h < told && i < queries; i++) {
            float* row = mean.as<float>() + (s * queries + i) * time;
            for (size_t t = 0; t < length; t++) row[t] += weights[i * time + t] / static_cast<float>(told);
          }
        }
      }
    });
  }

  float scale;
  size_t shown;
};

// The past of a query: entries of all heads, anywhere in two arrays, keys and values.
struct Attention {
  Attention(const Run& run, float scale)
      : q(run.input(0)), key(run.input(1)), value(run.input(2)), keys(run.input(3)), values(run.input(4)), scale(scale),
        slots(static_cast<size_t>(q.shape[0])), beams(static_cast<size_t>(q.shape[1])), dim(q.last()) {}

  // find(slot, beam, add): adds the entries of a hypothesis; returns the distance of their heads.
  // longest: most entries. before, now: biases of the entries and of the query's own key, or no data
  template <typename Find>
  void over(const Run& run, size_t heads, size_t longest, Find find, const Tensor& before = {}, const Tensor& now = {}) const {
    const Tensor y = run.output(0, q.shape);
    run.each(slots * beams, 4 * slots * beams * dim * longest, [&](size_t from, size_t until) {
      size_t* entries = scratch<Attention, size_t>(longest);
      float* room = scratch<Attention, float>(longest + 1);
      for (size_t i = from; i < until; i++) {
        size_t count = 0;
        const size_t stride = find(i / beams, i % beams, [&](size_t entry) { entries[count++] = entry; });
        const Past past{keys.as<float>(), values.as<float>(), entries, count, stride, before.as<float>(),
                        now.data ? now.as<float>() + i / beams * heads : nullptr};
        const size_t at = i * dim;
        chosen().attend_past(past, q.as<float>() + at, key.as<float>() + at, value.as<float>() + at, heads, dim / heads,
                             scale, room, y.as<float>() + at);
      }
    });
  }

  Tensor q, key, value, keys, values;
  float scale;
  size_t slots, beams, dim;
};

// One step over caches of all earlier positions: q, which is scaled first, key and value [slots, beams, D], keys and
// values [slots, heads, columns, beams, width], lineage [slots, beams, columns * beams], 0 at a hypothesis's own
// entries and -inf elsewhere, optional biases [slots, heads, 1, columns * beams] and [slots, heads, 1, 1] -> [slots,
// beams, D].
struct AttendCached {
  static constexpr const char* NAME = "AttendCached";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT,
                                   ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 6;

  explicit AttendCached(const Attributes& a) : scale(a.real("scale")) {}

  void run(const Run& run) {
    const Attention attention(run, scale);
    const Tensor lineage = run.input(5), before = run.input(6), now = run.input(7);
    const Shape& shape = attention.keys.shape;
    const size_t heads = static_cast<size_t>(shape[1]), columns = static_cast<size_t>(shape[2]);
    const size_t beams = attention.beams, width = attention.dim / heads, size = columns * beams;
    attention.over(run, heads, columns, [&](size_t slot, size_t beam, auto add) {
      const float* own = lineage.as<float>() + (slot * beams + beam) * size;
      for (size_t column = 0; column < size; column += beams) {
        size_t writer = 0;
        while (writer < beams && own[column + writer] < 0) writer++;
        if (writer == beams) break;  // columns are written in order
        add((slot * heads * size + column + writer) * width);
      }
      return size * width;
    }, before, now);
  }

  float scale;
};

// One step over a window: keys and values are rings [slots, window, beams, D], index [slots, beams, window] has their
// rows, oldest first, and mask [slots, 1, window] is -inf before the first token.
struct AttendWindow {
  static constexpr const char* NAME = "AttendWindow";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::INT64, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 7;

  explicit AttendWindow(const Attributes& a) : scale(a.real("scale")), heads(static_cast<size_t>(a.whole("heads"))) {}

  void run(const Run& run) {
    const Attention attention(run, scale);
    const Tensor index = run.input(5), mask = run.input(6);
    const size_t window = index.last(), beams = attention.beams, dim = attention.dim;
    attention.over(run, heads, window, [&](size_t slot, size_t beam, auto add) {
      const int64_t* rows = index.as<int64_t>() + (slot * beams + beam) * window;
      for (size_t age = 0; age < window; age++)
        if (mask.as<float>()[slot * window + age] >= 0) add(static_cast<size_t>(rows[age]) * dim);
      return dim / heads;
    });
  }

  float scale;
  size_t heads;
};

}  // namespace

Operators attention() { return operators<Attend, AttendCached, AttendWindow>(); }

}  // namespace convoy
