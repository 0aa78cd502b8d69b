// Prints a hash of the results of every kernel of one instruction set on fixed numbers. All sets print the same.
// Compiled by test_instruction_sets.py with -DPROBED=name, beside kernels.cpp with -DCONVOY_ISA=name.
#include <cstdio>
#include <cstring>
#include <vector>

#include "kernels.h"

namespace convoy::PROBED { extern const Kernels kernels; }
using namespace convoy;
static const Kernels& K = PROBED::kernels;

static uint64_t state;
static float number() {  // in (-4, 4), most near zero
  state = state * 6364136223846793005u + 1442695040888963407u;
  const float u = static_cast<float>(state >> 40) / 16777216.0f - 0.5f;
  return 32.0f * u * u * u;
}
static std::vector<float> numbers(size_t n) {
  std::vector<float> made(n);
  for (float& x : made) x = number();
  return made;
}
// Rows with magnitudes near zero, with runs of large ones, with large ones only, and rows without negative numbers.
enum class Rows { mixed, loud, flat, positive };
static std::vector<float> rows_of(Rows kind, size_t m, size_t k) {
  auto made = numbers(m * k);
  for (size_t i = 0; i < made.size(); i++) {
    if (kind == Rows::loud && i % 23 < 7) made[i] = made[i] < 0 ? -4.0f + made[i] / 9 : 4.0f - made[i] / 9;
    if (kind == Rows::flat) made[i] = made[i] < 0 ? -4.0f : 4.0f;
    if (kind == Rows::positive) made[i] = made[i] < 0 ? 0.0f : made[i];
  }
  return made;
}
static std::vector<int8_t> bytes(size_t n) {
  std::vector<int8_t> made(n);
  for (int8_t& x : made) x = static_cast<int8_t>(31.75f * number());
  return made;
}
template <typename T>
static void tell(const char* what, size_t size, const std::vector<T>& v) {
  uint64_t hash = 14695981039346656037u;
  const auto* raw = reinterpret_cast<const unsigned char*>(v.data());
  for (size_t i = 0; i < v.size() * sizeof(T); i++) hash = (hash ^ raw[i]) * 1099511628211u;
  std::printf("%s %zu %016llx\n", what, size, static_cast<unsigned long long>(hash));
}

static void products(Rows kind, size_t m, size_t k, size_t n) {  // n is not a multiple of a panel
  const size_t panels = (n + 31) / 32;
  const auto x = rows_of(kind, m, k), scales = numbers(n), bias = numbers(n), packed32 = numbers(panels * 32 * k);
  auto last = bytes(32 * k), packed = bytes(n * k);
  auto table = bytes(20 * k);
  for (auto* weights : {&packed, &table})
    for (int8_t& w : *weights) w = kind == Rows::mixed ? w : w < 0 ? -128 : 127;
  for (size_t row = 0; n % 32 && row < k; row++)  // absent columns are zeros
    for (size_t i = n % 32; i < 32; i++) last[row / 4 * 128 + (row < k / 4 * 4 ? i * 4 + row % 4 : i * (k % 4) + row % 4)] = 0;
  std::vector<int32_t> offsets(panels * 32);
  for (size_t p = 0; p < panels; p++)
    for (size_t i = 0; i < 32; i++)
      for (size_t row = 0; row < k; row++) {
        const int8_t* panel = (p + 1) * 32 <= n ? &packed[p * 32 * k] : last.data();
        const size_t at = row / 4 * 128 + (row < k / 4 * 4 ? i * 4 + row % 4 : i * (k % 4) + row % 4);
        offsets[p * 32 + i] -= K.offset * panel[at];
      }
  std::vector<uint8_t> rows(m * K.row_bytes(k));
  std::vector<float> steps(m);
  for (size_t i = 0; i < m; i++) K.quantize(&x[i * k], k, &rows[i * K.row_bytes(k)], &steps[i]);
  tell("quantize", k, steps);
  for (Epilogue e : {Epilogue::none, Epilogue::relu, Epilogue::glu}) {
    const bool gated = e == Epilogue::glu;
    if (gated && n % 32) continue;
    std::vector<float> y(m * (gated ? n / 2 : n)), y32 = y;
    K.product({rows.data(), steps.data()}, {packed.data(), last.data(), scales.data(), bias.data(), offsets.data()},
              {m, k, n}, 0, panels, y.data(), e);
    K.product32(x.data(), {packed32.data(), bias.data()}, {m, k, n}, 0, panels, y32.data(), e);
    tell("product", m * 1000 + k, y);
    tell("product32", m * 1000 + k, y32);
  }
  std::vector<int32_t> taken(20);
  for (size_t i = 0; i < 20 * k; i++) taken[i / k] -= K.offset * table[i];
  const std::vector<int64_t> ids{3, 19, 0, -1, 7, 7, 11};
  std::vector<float> y(m * ids.size());
  K.among8({rows.data(), steps.data()}, table.data(), scales.data(), taken.data(), m, k, ids.data(), ids.size(), y.data());
  tell("among8", k, y);
  K.among(x.data(), packed32.data(), m, k, ids.data(), ids.size(), y.data());
  tell("among", k, y);
}

static void attention(size_t width, size_t time, size_t queries) {
  const auto q = numbers(queries * width), keys = numbers(2 * width * time), values = numbers(2 * width * time);
  std::vector<float> mask(time), weights(queries * time), context(queries * width);
  const size_t length = time - time / 3;
  for (size_t t = length; t < time; t++) mask[t] = -__builtin_inff();
  K.attend({keys.data(), values.data(), mask.data(), width, time, length, width}, q.data(), queries, weights.data(), context.data());
  tell("attend", time, context);
  std::vector<size_t> entries;
  for (size_t t = 0; t < length; t += 2) entries.push_back(t * width);
  std::vector<float> scratch(entries.size() + 1), one(width);
  K.attend_past({keys.data(), values.data(), entries.data(), entries.size(), 0, nullptr, nullptr}, q.data(), &keys[3], &values[5], 1, width,
                0.125f, scratch.data(), one.data());
  tell("attend_past", time, one);
}

int main() {
  for (size_t k : {64u, 70u, 5u})
    for (size_t m : {1u, 4u, 13u}) products(Rows::mixed, m, k, k == 70 ? 80 : 96);
  for (Rows kind : {Rows::loud, Rows::flat, Rows::positive})
    for (size_t k : {12u, 93u, 160u}) products(kind, 7, k, 64);
  attention(64, 96, 5);
  attention(20, 33, 2);
  for (size_t n : {7u, 48u, 300u}) {
    auto y = numbers(n);
    const auto residual = numbers(n), gain = numbers(n), bias = numbers(n);
    K.add_norm(y.data(), residual.data(), gain.data(), bias.data(), 1e-5f, n);
    tell("add_norm", n, y);
    K.softmax(residual.data(), n, y.data());
    tell("softmax", n, y);
    const auto taps = numbers(2 * 3), x = numbers(3 * 2 * n);
    const float* rows[] = {&x[0], nullptr, &x[2 * n]};
    std::vector<float> mixed(2 * n);
    K.taps(rows, nullptr, taps.data(), 2, 3, 2 * n, mixed.data());
    tell("taps", n, mixed);
    const int64_t banned[] = {1, 4};
    std::vector<float> scores(5), scratch(n / 64 + 1);
    std::vector<int64_t> ids(5);
    K.select({residual.data(), banned, n, 2, 5, 1.0f, 0.5f, -1, 3, 2}, scores.data(), ids.data(), scratch.data());
    tell("select", n, scores);
    tell("select", n, ids);
  }
}
