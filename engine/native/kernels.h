// The computations of the operators, on plain pointers. There is one implementation for each instruction set
// (kernels.cpp is compiled several times); `best()` chooses at run time. All tensors are contiguous and row-major.
//
// Every result depends only on its own row, and the order of sums depends only on the length of the row. So an answer
// is equal bit for bit in any batch and on any instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convoy {

// The epilogue of a product: y, relu(y), y[:half] * sigmoid(y[half:]), or the layer norm of y and a residual.
enum class Epilogue { none, relu, glu, norm };

struct Sizes {
  size_t m, k, n;  // shapes [m, k] and [k, n] of the factors
};

struct Quantized {
  const void* rows;     // [M, K], x / scale rounded, in the form of the instruction set
  const float* scales;  // [M]
};

struct Weights {
  const int8_t* packed;    // [K, N] in panels, see bytes.h and `engine.native.pack`
  const int8_t* last;      // the last panel padded with zeros, if it is not full
  const float* scales;     // [N]
  const float* bias;       // [N] or null
  const int32_t* offsets;  // [panels, 32], initial values of the sums
};

struct Weights32 {
  const float* packed;  // [K, N] in panels, see floats.h and `engine.native.pack32`
  const float* bias;    // [N] or null
};

// One head of attention over one source.
struct Heads {
  const float* keys;    // [width, time]
  const float* values;  // [time, width]
  const float* mask;    // [time], 0 or -inf
  size_t width, time;
  size_t length;  // number of positions that count; the mask hides the others
  size_t dim;     // floats from query to query
};

// The past of one hypothesis: entries of all heads, anywhere in an array.
struct Past {
  const float* keys;
  const float* values;
  const size_t* entries;  // [count], offset of each entry's first head
  size_t count;
  size_t stride;       // floats from head to head of an entry
  const float* bias;   // [heads, stride / width], added to the logits of entries; or null
  const float* own;    // [heads], added to the logits of the query's own key; or null
};

// The rules of selection for one row.
struct Selection {
  const float* logits;    // [vocab]
  const int64_t* banned;  // [bans]
  size_t vocab, bans, k;
  float unk_penalty, eos_penalty;
  int64_t forced, unk, eos;  // -1: none
};

struct Kernels {
  const char* name;
  bool fast;           // whether it is faster than the standard operators
  size_t (*row_bytes)(size_t k);  // bytes of a quantised row of k numbers
  int32_t offset;      // offset added to each number
  // quantises x [M, K], with one scale per row
  void (*quantize)(const float* x, size_t k, void* numbers, float* scale);
  // computes panels [from, until) of the product, dequantised, with the epilogue except the norm; y [M, N], or
  // [M, N / 2] with a gate
  void (*product)(const Quantized& x, const Weights& w, const Sizes& s, size_t from, size_t until, float* y,
                  Epilogue epilogue);
  void (*product32)(const float* x, const Weights32& w, const Sizes& s, size_t from, size_t until, float* y,
                    Epilogue epilogue);
  // y = layer norm of y + residual
  void (*add_norm)(float* y, const float* residual, const float* gain, const float* bias, float eps, size_t n);
  void (*softmax)(const float* x, size_t n, float* y);
  // y [channels] = sum over taps; rows[i] points to the input of tap i, null beyond the edge; next: rows of the next
  // call, or null; taps [heads, k]
  void (*taps)(const float* const* rows, const float* const* next, const float* taps, size_t heads, size_t k,
               size_t channels, float* y);
  // queries [queries, dim] of one head; weights [queries, time], written up to `length` rounded up to blocks of 16;
  // context [queries, dim]
  void (*attend)(const Heads& h, const float* q, size_t queries, float* weights, float* context);
  // one query [heads, width] over its past and its own key and value [heads, width]; context [heads, width]; scratch:
  // past.count + 1 floats
  void (*attend_past)(const Past& past, const float* q, const float* key, const float* value, size_t heads, size_t width,
                      float scale, float* scratch, float* context);
  // writes the k best log-probabilities of one row (engine/models/select.py); scratch: vocab / 64 + 1 floats
  void (*select)(const Selection& s, float* scores, int64_t* ids, float* scratch);
  // y [m, count]: columns `ids` of a product, -inf for -1; rows [N, K] of integers; offsets [N] as in Weights
  void (*among8)(Quantized x, const int8_t* rows, const float* scales, const int32_t* offsets, size_t m, size_t k,
                 const int64_t* ids, size_t count, float* y);
  void (*among)(const float* x, const float* rows, size_t m, size_t k, const int64_t* ids, size_t count, float* y);
  // described in cells.h
  void (*quantize_static)(const float* x, float alpha, size_t k, void* numbers);
  void (*ssru)(const float* candidate, const float* gate, const float* before, size_t n, float* cell, float* out);
};

const Kernels& best();                   // kernels for this machine
const Kernels* named(const char* name);  // null if the name is unknown, or not supported by this machine

}  // namespace convoy
