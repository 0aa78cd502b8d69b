// Operators of dynamic and light convolution. engine/kernels/reference.py defines their results.
#include "run.h"

namespace convoy {
namespace {

// The taps of a convolution: [.., heads, K], one kernel for each row, or [heads, K], the same for all.
struct Taps {
  Taps(const Tensor& taps, bool softmax)
      : data(taps.as<float>()), k(taps.last()), heads(static_cast<size_t>(taps.shape[taps.shape.size() - 2])),
        stride(taps.shape.size() == 2 ? 0 : heads * k), softmax(softmax) {}

  // Returns the taps of row i; `own` is memory for them.
  const float* of(size_t i, float* own) const {
    const float* given = data + i * stride;
    if (!softmax) return given;
    for (size_t h = 0; h < heads; h++) chosen().softmax(given + h * k, k, own + h * k);
    return own;
  }

  const float* data;
  size_t k, heads, stride;
  bool softmax;
};

// One step: x [slots, beams, C], taps [slots, beams, heads, K] or [heads, K] (before their softmax, or after it),
// ring [slots, K - 1, beams, C], index [slots, beams, K - 1] -> [slots, beams, C]
struct DynamicConvStep {
  static constexpr const char* NAME = "DynamicConvStep";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::INT64};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 2;

  explicit DynamicConvStep(const Attributes& a) : softmax(a.whole("softmax") != 0) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), taps = run.input(1), ring = run.input(2), index = run.input(3);
    const size_t c = x.last(), m = x.size() / c, k = taps.last();
    const Taps kernels(taps, softmax);
    const Tensor y = run.output(0, x.shape);
    run.each(m, m * c * k, [&](size_t from, size_t until) {
      const float** rows = scratch<DynamicConvStep, const float*>(2 * k);  // of this hypothesis and the next one
      float* own = scratch<DynamicConvStep, float>(kernels.heads * k);
      auto find = [&](size_t i) {
        const float** found = &rows[i % 2 * k];
        for (size_t j = 0; j + 1 < k; j++)
          found[j] = ring.as<float>() + static_cast<size_t>(index.as<int64_t>()[i * (k - 1) + j]) * c;
        found[k - 1] = x.as<float>() + i * c;
      };
      find(from);
      for (size_t i = from; i < until; i++) {
        if (i + 1 < until) find(i + 1);
        const float* const* next = i + 1 < until ? &rows[(i + 1) % 2 * k] : nullptr;
        chosen().taps(&rows[i % 2 * k], next, kernels.of(i, own), kernels.heads, k, c, y.as<float>() + i * c);
      }
    });
  }

  bool softmax;
};

// Whole sequences: x [batch, time, C], taps [batch, time, heads, K] or [heads, K] -> [batch, time, C]
struct DynamicConv {
  static constexpr const char* NAME = "DynamicConv";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 2;

  explicit DynamicConv(const Attributes& a) : softmax(a.whole("softmax") != 0), left(a.whole("left")) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), taps = run.input(1);
    const size_t c = x.last(), m = x.size() / c, k = taps.last();
    const int64_t time = x.shape[1];
    const Taps kernels(taps, softmax);
    const Tensor y = run.output(0, x.shape);
    run.each(m, m * c * k, [&](size_t from, size_t until) {
      const float** rows = scratch<DynamicConv, const float*>(k);
      float* own = scratch<DynamicConv, float>(kernels.heads * k);
      for (size_t i = from; i < until; i++) {
        const int64_t at = static_cast<int64_t>(i) % time;
        for (size_t j = 0; j < k; j++) {
          const int64_t t = at - left + static_cast<int64_t>(j);
          const bool inside = t >= 0 && t < time;
          rows[j] = inside ? x.as<float>() + (static_cast<int64_t>(i) - at + t) * static_cast<int64_t>(c) : nullptr;
        }
        chosen().taps(rows, nullptr, kernels.of(i, own), kernels.heads, k, c, y.as<float>() + i * c);
      }
    });
  }

  bool softmax;
  int64_t left;
};

}  // namespace

Operators convolutions() { return operators<DynamicConvStep, DynamicConv>(); }

}  // namespace convoy
