// The operators that multiply by weights, and the norm that may follow. Included by ops.cpp.
#pragma once

#include <memory>
#include <mutex>
#include <numeric>

#include "run.h"

namespace convoy {
namespace {

// The layer norm of what a product left and a residual: operands residual [.., N], gain [N] and shift [N].
struct Norm {
  Norm(const Run& run, size_t first, float eps)
      : residual(run.input(first)), gain(run.input(first + 1)), shift(run.input(first + 2)), eps(eps) {}

  // y [rows, n], in place; the residual's rows begin at `begin`
  void over(const Run& run, float* y, size_t begin, size_t rows, size_t n) const {
    run.each(rows, rows * n * 4, [&](size_t from, size_t until) {
      for (size_t i = from; i < until; i++)
        chosen().add_norm(y + i * n, residual.as<float>() + (begin + i) * n, gain.as<float>(), shift.as<float>(), eps, n);
    });
  }

  Tensor residual, gain, shift;
  float eps;
};

// x [.., K], packed weights [K, N], their scales [N] and maybe a bias [N] -> [.., N] (N / 2 after a gate). With a
// residual [.., N], a gain [N] and a shift [N]: the layer norm of the sum
struct Int8Linear {
  static constexpr const char* NAME = "Int8Linear";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::INT8, ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 3;

  explicit Int8Linear(const Attributes& a)
      : epilogue(static_cast<Epilogue>(a.whole("epilogue"))),
        eps(epilogue == Epilogue::norm ? a.real("epsilon") : 0.0f) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), w = run.input(1), scales = run.input(2), bias = run.input(3);
    const size_t k = x.last(), n = w.last(), m = x.size(0, x.shape.size() - 1);
    const bool gated = epilogue == Epilogue::glu;
    const Kernels& kernels = chosen();
    std::call_once(summed, [&] { sum(w.as<int8_t>(), k, n); });
    std::vector<int64_t> shape = x.shape;
    const size_t width = gated ? n / 2 : n, panels = gated ? (n / 2 + 15) / 16 : (n + 31) / 32;
    shape.back() = static_cast<int64_t>(width);
    const Tensor y = run.output(0, shape);
    const Weights weights{w.as<int8_t>(), scales.as<float>(), bias.as<float>(), sums.data()};
    // many rows go in bands, so that what was quantised and what waits for its norm stay in the cache; few do not,
    // for each band reads all the weights again
    const size_t band = m < 2 * BAND ? m : BAND;
    const auto bytes = std::make_unique_for_overwrite<uint8_t[]>(band * k);
    const auto steps = std::make_unique_for_overwrite<float[]>(band);
    for (size_t begin = 0; begin < m; begin += band) {
      const size_t rows = std::min(band, m - begin);
      run.each(rows, rows * k, [&](size_t from, size_t until) {
        for (size_t i = from; i < until; i++)
          kernels.quantize(x.as<float>() + (begin + i) * k, k, &bytes[i * k], &steps[i]);
      });
      float* out = y.as<float>() + begin * width;
      run.each(panels, rows * k * n / 16, [&](size_t from, size_t until) {
        kernels.product({bytes.get(), steps.get()}, weights, {rows, k, n}, from, until, out, epilogue);
      });
      if (epilogue == Epilogue::norm) Norm(run, 4, eps).over(run, out, begin, rows, n);
    }
  }

 private:
  static constexpr size_t BAND = 192;  // rows

  // 128 times the sum of each column: what the offset of the bytes adds to a product
  void sum(const int8_t* packed, size_t k, size_t n) {
    sums.assign(n, 0);
    const bool gated = epilogue == Epilogue::glu;
    const size_t half = gated ? n / 2 : 0, of_panel = gated ? 16 : 32, end = gated ? half : n, rest = k % 4;
    auto add = [&](size_t column, const int8_t* b, size_t count) { sums[column] += 128 * std::accumulate(b, b + count, 0); };
    for (size_t begin = 0; begin < end; begin += of_panel) {
      const size_t values = std::min(of_panel, end - begin), width = gated ? 2 * values : values;
      auto column = [&](size_t i) { return i < values ? begin + i : half + begin + i - values; };
      const int8_t* b = packed + (gated ? 2 : 1) * begin * k;
      for (size_t g = 0; g < k / 4; g++)
        for (size_t i = 0; i < width; i++, b += 4) add(column(i), b, 4);
      for (size_t i = 0; i < width; i++, b += rest) add(column(i), b, rest);
    }
  }

  Epilogue epilogue;
  float eps;
  std::once_flag summed;
  std::vector<int32_t> sums;
};

// The same in floats: x [.., K], packed weights [K, N filled up to panels], maybe a bias [N], and what a norm needs
struct Linear {
  static constexpr const char* NAME = "Linear";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 2;

  explicit Linear(const Attributes& a)
      : epilogue(static_cast<Epilogue>(a.whole("epilogue"))), n(static_cast<size_t>(a.whole("columns"))),
        eps(epilogue == Epilogue::norm ? a.real("epsilon") : 0.0f) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), w = run.input(1), bias = run.input(2);
    const size_t k = x.last(), m = x.size(0, x.shape.size() - 1), panels = w.last() / 32;
    const size_t width = epilogue == Epilogue::glu ? n / 2 : n;
    std::vector<int64_t> shape = x.shape;
    shape.back() = static_cast<int64_t>(width);
    const Tensor y = run.output(0, shape);
    for (size_t begin = 0; begin < m; begin += BAND) {
      const size_t rows = std::min(BAND, m - begin);
      float* out = y.as<float>() + begin * width;
      run.each(panels, rows * k * n, [&](size_t from, size_t until) {
        chosen().product32(x.as<float>() + begin * k, {w.as<float>(), bias.as<float>()}, {rows, k, n}, from, until, out,
                           epilogue);
      });
      if (epilogue == Epilogue::norm) Norm(run, 3, eps).over(run, out, begin, rows, n);
    }
  }

 private:
  static constexpr size_t BAND = 240;  // rows that stay in the cache until their norm

  Epilogue epilogue;
  size_t n;
  float eps;
};

// layer norm of x + residual, over the last axis
struct AddNorm {
  static constexpr const char* NAME = "AddNorm";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 4;

  explicit AddNorm(const Attributes& a) : eps(a.real("epsilon")) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), y = run.output(0, x.shape);
    const size_t n = x.last();
    std::copy_n(x.as<float>(), x.size(), y.as<float>());
    Norm(run, 1, eps).over(run, y.as<float>(), 0, x.size() / n, n);
  }

  float eps;
};

// A product of which each slot wants some columns only: x [slots, beams, K], rows [N, K], their scales [N], ids [slots,
// W] or -1 -> [slots, beams, W], -inf where there is no id
struct Int8Among {
  static constexpr const char* NAME = "Int8Among";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::INT8, ort::FLOAT, ort::INT64};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 4;

  explicit Int8Among(const Attributes&) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), rows = run.input(1), scales = run.input(2), ids = run.input(3);
    const size_t k = x.last(), slots = static_cast<size_t>(x.shape[0]), beams = static_cast<size_t>(x.shape[1]);
    const size_t width = ids.last();
    std::call_once(summed, [&] {
      sums.resize(rows.size() / k);
      for (size_t i = 0; i < sums.size(); i++)
        sums[i] = 128 * std::accumulate(rows.as<int8_t>() + i * k, rows.as<int8_t>() + (i + 1) * k, 0);
    });
    const Tensor y = run.output(0, {x.shape[0], x.shape[1], static_cast<int64_t>(width)});
    run.each(slots, slots * beams * k * width / 16, [&](size_t from, size_t until) {
      const auto bytes = std::make_unique_for_overwrite<uint8_t[]>(beams * k);
      const auto steps = std::make_unique_for_overwrite<float[]>(beams);
      for (size_t s = from; s < until; s++) {
        for (size_t b = 0; b < beams; b++)
          chosen().quantize(x.as<float>() + (s * beams + b) * k, k, &bytes[b * k], &steps[b]);
        chosen().among8({bytes.get(), steps.get()}, rows.as<int8_t>(), scales.as<float>(), sums.data(), beams, k,
                        ids.as<int64_t>() + s * width, width, y.as<float>() + s * beams * width);
      }
    });
  }

 private:
  std::once_flag summed;
  std::vector<int32_t> sums;
};

// The same in floats
struct Among {
  static constexpr const char* NAME = "Among";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::INT64};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 3;

  explicit Among(const Attributes&) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), rows = run.input(1), ids = run.input(2);
    const size_t k = x.last(), slots = static_cast<size_t>(x.shape[0]), beams = static_cast<size_t>(x.shape[1]);
    const size_t width = ids.last();
    const Tensor y = run.output(0, {x.shape[0], x.shape[1], static_cast<int64_t>(width)});
    run.each(slots, slots * beams * k * width, [&](size_t from, size_t until) {
      for (size_t s = from; s < until; s++)
        chosen().among(x.as<float>() + s * beams * k, rows.as<float>(), beams, k, ids.as<int64_t>() + s * width,
                       width, y.as<float>() + s * beams * width);
    });
  }
};

}  // namespace
}  // namespace convoy
