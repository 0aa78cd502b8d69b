// Operators of products with weights, optionally with a norm.
#include <algorithm>
#include <mutex>
#include <numeric>
#include <vector>

#include "run.h"

namespace convoy {
namespace {

// The layer norm of a product and a residual, with gain [N] and shift [N]; its inputs begin at index `first`.
struct Norm {
  Norm(const Attributes& a, size_t first, bool wanted = true)
      : first(first), gain(a.constant(first)), shift(a.constant(first + 1)), eps(wanted ? a.real("epsilon") : 0.0f) {}

  // Norms y + residual [rows, n] into y.
  void over(const Run& run, float* y, const float* residual, size_t rows, size_t n) const {
    const Tensor gain = run.input(first, this->gain), shift = run.input(first + 1, this->shift);
    run.each(rows, rows * n * 4, [&](size_t from, size_t until) {
      for (size_t i = from; i < until; i++)
        chosen().add_norm(y + i * n, residual + i * n, gain.as<float>(), shift.as<float>(), eps, n);
    });
  }

  size_t first;
  Tensor gain, shift;
  float eps;
};

// Rows as integers: with a scale for each row, or with the fixed scale of the weights' file, which the scales of the
// weights include already.
inline void quantized(const float* x, const Tensor& alpha, size_t k, void* numbers, float* step) {
  if (!alpha.data) return chosen().quantize(x, k, numbers, step);
  chosen().quantize_static(x, *alpha.as<float>(), k, numbers);
  *step = 1.0f;
}

// x [.., K], packed weights [K, N], their scales [N], optional bias [N] -> [.., N] (N / 2 with a gate). With a
// residual [.., N], a gain [N] and a shift [N]: the layer norm of the sum. With an alpha [1]: the fixed scale of x
struct Int8Linear {
  static constexpr const char* NAME = "Int8Linear";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::INT8,  ort::FLOAT, ort::FLOAT,
                                   ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 3;

  explicit Int8Linear(const Attributes& a)
      : epilogue(static_cast<Epilogue>(a.whole("epilogue"))), norm(a, 5, epilogue == Epilogue::norm),
        constants{{}, a.constant(1), a.constant(2), a.constant(3)} {}

  void run(const Run& run) {
    const Tensor x = run.input(0), residual = epilogue == Epilogue::norm ? run.input(4) : Tensor{};
    const Tensor w = run.input(1, constants[1]), scales = run.input(2, constants[2]), bias = run.input(3, constants[3]);
    const Tensor alpha = run.input(7);
    std::call_once(readied, [&] { ready(w.as<int8_t>(), x.last(), w.last()); });
    const size_t k = x.last(), n = w.last(), m = x.size(0, x.shape.size() - 1);
    const bool gated = epilogue == Epilogue::glu;
    const Kernels& kernels = chosen();
    Shape shape = x.shape;
    const size_t width = gated ? n / 2 : n, panels = gated ? (n / 2 + 15) / 16 : (n + 31) / 32;
    shape.back() = static_cast<int64_t>(width);
    const Tensor y = run.output(0, shape);
    const Weights weights{w.as<int8_t>(), last.data(), scales.as<float>(), bias.as<float>(), offsets.data()};
    // many rows are computed in bands, so that quantised rows and results before their norm stay in the cache; few
    // rows are not, because each band reads all weights
    const size_t band = m < 2 * BAND ? m : BAND;
    const size_t row = kernels.row_bytes(k);
    uint8_t* numbers = scratch<Int8Linear, uint8_t>(band * row);
    float* steps = scratch<Int8Linear, float>(band);
    for (size_t begin = 0; begin < m; begin += band) {
      const size_t rows = std::min(band, m - begin);
      run.each(rows, rows * k, [&](size_t from, size_t until) {
        for (size_t i = from; i < until; i++)
          quantized(x.as<float>() + (begin + i) * k, alpha, k, &numbers[i * row], &steps[i]);
      });
      float* out = y.as<float>() + begin * width;
      run.each(panels, rows * k * n / 16, [&](size_t from, size_t until) {
        kernels.product({numbers, steps}, weights, {rows, k, n}, from, until, out, epilogue);
      });
      if (residual.data) norm.over(run, out, residual.as<float>() + begin * n, rows, n);
    }
  }

 private:
  static constexpr size_t BAND = 192;  // rows

  // The last panel padded with zeros, and the corrections for the offset of quantised numbers: minus the offset times
  // the sum of each column, by panels.
  void ready(const int8_t* packed, size_t k, size_t n) {
    const bool gated = epilogue == Epilogue::glu;
    const size_t panels = gated ? (n / 2 + 15) / 16 : (n + 31) / 32, whole = gated ? n / 32 : n / 32;
    const size_t columns = n - whole * 32, half = gated ? columns / 2 : columns, rest = k % 4;
    // index of a column in the last panel; gates begin in the middle
    auto place = [&](size_t i) { return i < half ? i : i - half + 16; };
    last.assign(columns ? 32 * k : 0, 0);
    const int8_t* from = packed + whole * 32 * k;
    for (size_t g = 0; g < k / 4; g++)
      for (size_t i = 0; i < columns; i++, from += 4) std::copy_n(from, 4, &last[(g * 32 + place(i)) * 4]);
    for (size_t i = 0; i < columns; i++, from += rest)
      std::copy_n(from, rest, last.data() + k / 4 * 128 + place(i) * rest);
    offsets.assign(panels * 32, 0);
    if (!chosen().offset) return;
    for (size_t p = 0; p < panels; p++) {
      const int8_t* b = p < whole ? packed + p * 32 * k : last.data();
      auto add = [&](size_t i, size_t count) {
        offsets[p * 32 + i] -= chosen().offset * std::accumulate(b, b + count, 0);
        b += count;
      };
      for (size_t g = 0; g < k / 4; g++)
        for (size_t i = 0; i < 32; i++) add(i, 4);
      for (size_t i = 0; i < 32; i++) add(i, rest);
    }
  }

  Epilogue epilogue;
  Norm norm;
  Tensor constants[4];  // weights, scales and bias, by input
  std::once_flag readied;
  std::vector<int8_t> last;
  std::vector<int32_t> offsets;
};

// A product in floats: x [.., K], packed weights [K, N rounded up to panels], optional bias [N], and inputs of a norm
struct Linear {
  static constexpr const char* NAME = "Linear";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 2;

  explicit Linear(const Attributes& a)
      : epilogue(static_cast<Epilogue>(a.whole("epilogue"))), n(static_cast<size_t>(a.whole("columns"))),
        norm(a, 4, epilogue == Epilogue::norm), constants{{}, a.constant(1), a.constant(2)} {}

  void run(const Run& run) {
    const Tensor x = run.input(0), residual = epilogue == Epilogue::norm ? run.input(3) : Tensor{};
    const Tensor w = run.input(1, constants[1]), bias = run.input(2, constants[2]);
    const size_t k = x.last(), m = x.size(0, x.shape.size() - 1), panels = w.last() / 32;
    const size_t width = epilogue == Epilogue::glu ? n / 2 : n;
    Shape shape = x.shape;
    shape.back() = static_cast<int64_t>(width);
    const Tensor y = run.output(0, shape);
    for (size_t begin = 0; begin < m; begin += BAND) {
      const size_t rows = std::min(BAND, m - begin);
      float* out = y.as<float>() + begin * width;
      run.each(panels, rows * k * n, [&](size_t from, size_t until) {
        chosen().product32(x.as<float>() + begin * k, {w.as<float>(), bias.as<float>()}, {rows, k, n}, from, until, out,
                           epilogue);
      });
      if (residual.data) norm.over(run, out, residual.as<float>() + begin * n, rows, n);
    }
  }

 private:
  static constexpr size_t BAND = 240;  // number of rows that fit into the cache until their norm

  Epilogue epilogue;
  size_t n;
  Norm norm;
  Tensor constants[3];  // weights and bias, by input
};

// The layer norm of x + residual over the last axis.
struct AddNorm {
  static constexpr const char* NAME = "AddNorm";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 4;

  explicit AddNorm(const Attributes& a) : norm(a, 2) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), residual = run.input(1), y = run.output(0, x.shape);
    const size_t n = x.last();
    std::copy_n(x.as<float>(), x.size(), y.as<float>());
    norm.over(run, y.as<float>(), residual.as<float>(), x.size() / n, n);
  }

  Norm norm;
};

// Adds the biases of listed columns to y [rows, width].
inline void add_biases(const Tensor& bias, const int64_t* ids, size_t width, size_t rows, float* y) {
  for (size_t j = 0; bias.data && j < width; j++)
    for (size_t i = 0; ids[j] >= 0 && i < rows; i++) y[i * width + j] += bias.as<float>()[ids[j]];
}

// A product with some columns for each slot: x [slots, beams, K], rows [N, K], their scales [N], ids [slots, W] or -1,
// optional bias [N] and alpha [1] -> [slots, beams, W], -inf for an id of -1.
struct Int8Among {
  static constexpr const char* NAME = "Int8Among";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::INT8, ort::FLOAT, ort::INT64, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 4;

  explicit Int8Among(const Attributes&) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), rows = run.input(1), scales = run.input(2), ids = run.input(3);
    const Tensor bias = run.input(4), alpha = run.input(5);
    const size_t k = x.last(), slots = static_cast<size_t>(x.shape[0]), beams = static_cast<size_t>(x.shape[1]);
    const size_t width = ids.last();
    const Kernels& kernels = chosen();
    std::call_once(summed, [&] {
      offsets.resize(rows.size() / k);
      for (size_t i = 0; i < offsets.size(); i++)
        offsets[i] = -kernels.offset * std::accumulate(rows.as<int8_t>() + i * k, rows.as<int8_t>() + (i + 1) * k, 0);
    });
    const Tensor y = run.output(0, {x.shape[0], x.shape[1], static_cast<int64_t>(width)});
    run.each(slots, slots * beams * k * width / 16, [&](size_t from, size_t until) {
      const size_t row = kernels.row_bytes(k);
      uint8_t* numbers = scratch<Int8Among, uint8_t>(beams * row);
      float* steps = scratch<Int8Among, float>(beams);
      for (size_t s = from; s < until; s++) {
        for (size_t b = 0; b < beams; b++)
          quantized(x.as<float>() + (s * beams + b) * k, alpha, k, &numbers[b * row], &steps[b]);
        const int64_t* list = ids.as<int64_t>() + s * width;
        float* out = y.as<float>() + s * beams * width;
        kernels.among8({numbers, steps}, rows.as<int8_t>(), scales.as<float>(), offsets.data(), beams, k, list,
                       width, out);
        add_biases(bias, list, width, beams, out);
      }
    });
  }

 private:
  std::once_flag summed;
  std::vector<int32_t> offsets;
};

// The same product in floats.
struct Among {
  static constexpr const char* NAME = "Among";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::INT64, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 3;

  explicit Among(const Attributes&) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), rows = run.input(1), ids = run.input(2), bias = run.input(3);
    const size_t k = x.last(), slots = static_cast<size_t>(x.shape[0]), beams = static_cast<size_t>(x.shape[1]);
    const size_t width = ids.last();
    const Tensor y = run.output(0, {x.shape[0], x.shape[1], static_cast<int64_t>(width)});
    run.each(slots, slots * beams * k * width, [&](size_t from, size_t until) {
      for (size_t s = from; s < until; s++) {
        const int64_t* list = ids.as<int64_t>() + s * width;
        float* out = y.as<float>() + s * beams * width;
        chosen().among(x.as<float>() + s * beams * k, rows.as<float>(), beams, k, list, width, out);
        add_biases(bias, list, width, beams, out);
      }
    });
  }
};

}  // namespace

Operators products() { return operators<Int8Linear, Linear, AddNorm, Int8Among, Among>(); }

}  // namespace convoy
