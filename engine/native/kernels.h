// What the operators compute, on plain pointers. One implementation for each instruction set (kernels.cpp is
// compiled several times); `best()` picks at run time. All tensors are contiguous and row-major.
//
// Every result depends on its own row only, and sums run in an order that depends on nothing but the length of
// the row, so an answer is the same bit for bit whatever else is in the batch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convoy {

// The epilogue of a product: y, relu(y), or y[:half] * sigmoid(y[half:]).
enum class Epilogue { none, relu, glu };

struct Quantized {
  const uint8_t* rows;  // [M, K], x / scale rounded, plus 128
  const float* scales;  // [M]
};

struct Weights {
  const int8_t* packed;  // see `tables.pack_int8`: blocks of 16 columns, four of K together
  const float* scales;   // [N]
  const float* bias;     // [N] or null
  const int32_t* sums;   // [N], 128 x the sum of each column
};

// One head of attention over one source.
struct Heads {
  const float* keys;    // [width, time]
  const float* values;  // [time, width]
  const float* mask;    // [time], 0 or -inf
  size_t width, time;
  size_t length;  // positions that count; the mask hides the rest
  size_t dim;     // floats between queries
};

struct Selection {
  const float* logits;    // [rows, vocab]
  const int64_t* forced;  // [rows], or -1
  const int64_t* banned;  // [rows, bans]
  const float* unk_penalty;
  const float* eos_penalty;  // [rows]
  size_t vocab, bans, k;
  int64_t unk, eos;  // unk -1: none
};

struct Kernels {
  const char* name;
  // x [M, K] to bytes and scales, one scale a row
  void (*quantize)(const float* x, size_t k, uint8_t* bytes, float* scale);
  // y [M, from..until) += product, dequantised; ldy floats between rows
  void (*product)(Quantized x, Weights w, size_t m, size_t k, size_t n, size_t from, size_t until, float* y,
                  size_t ldy, bool relu);
  void (*glu)(const float* x, size_t half, float* y);
  // y = layer norm of x + residual
  void (*add_norm)(const float* x, const float* residual, const float* gain, const float* bias, float eps,
                   size_t n, float* y);
  void (*softmax)(const float* x, size_t n, float* y);
  // y [channels] = sum over taps; rows[i] points to the input under tap i; taps [heads, k]
  void (*taps)(const float* const* rows, const float* taps, size_t heads, size_t k, size_t channels, float* y);
  // queries [queries, dim] of one head; weights [queries, time], of which the first `length`, rounded up to blocks
  // of 16, are written; context [queries, dim]
  void (*attend)(const Heads& h, const float* q, size_t queries, float* weights, float* context);
  // the k best log-probabilities of one row, see engine/models/select.py; scratch: vocab / 64 + 1 floats
  void (*select)(const Selection& s, size_t row, float* scores, int64_t* ids, float* scratch);
};

const Kernels& best();       // of this machine
const Kernels* named(const char* name);  // null: unknown here, or unknown to this machine

}  // namespace convoy
