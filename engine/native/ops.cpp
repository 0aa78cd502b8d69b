// The kernels as operators of ONNX Runtime, domain "convoy". What each computes stands in export/ops.py, where
// the same functions are made of standard operators.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "kernels.h"
#include "ort.h"

namespace convoy {
namespace {

constexpr size_t GRAIN = 1 << 16;  // multiplications that are worth another thread

struct Failure {
  OrtStatus* status;
};

struct Tensor {
  std::vector<int64_t> shape;
  void* data = nullptr;

  size_t size(size_t from = 0, size_t until = ~size_t{0}) const {
    until = std::min(until, shape.size());
    size_t product = 1;
    for (size_t i = from; i < until; i++) product *= static_cast<size_t>(shape[i]);
    return product;
  }
  size_t last() const { return static_cast<size_t>(shape.back()); }
  template <typename T>
  T* as() const { return static_cast<T*>(data); }
};

// One run of one operator.
class Run {
 public:
  Run(const OrtApi& api, OrtKernelContext* context) : api_(api), context_(context) {}

  Tensor input(size_t at) const {
    const OrtValue* value = nullptr;
    check(api_.get<ort::GetInput>(90)(context_, at, &value));
    return value ? view(value) : Tensor{};
  }
  Tensor output(size_t at, std::vector<int64_t> shape) const {
    OrtValue* value = nullptr;
    check(api_.get<ort::GetOutput>(91)(context_, at, shape.data(), shape.size(), &value));
    Tensor made{std::move(shape), nullptr};
    if (value) check(api_.get<ort::GetTensorMutableData>(51)(value, &made.data));
    return made;
  }
  // body(from, until) over 0..total, in parallel when the work is worth it
  template <typename Body>
  void each(size_t total, size_t work, Body body) const {
    const size_t parts = std::min({total, work / GRAIN + 1, size_t{16}});
    if (parts <= 1) return body(size_t{0}, total);
    struct Shared {
      Body& body;
      size_t total, parts;
    } shared{body, total, parts};
    auto part = [](void* data, size_t at) {
      auto& s = *static_cast<Shared*>(data);
      s.body(s.total * at / s.parts, s.total * (at + 1) / s.parts);
    };
    check(api_.get<ort::ParallelFor>(274)(context_, part, parts, 0, &shared));
  }

 private:
  Tensor view(const OrtValue* value) const {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    size_t rank = 0;
    Tensor found;
    check(api_.get<ort::GetTensorTypeAndShape>(65)(value, &info));
    check(api_.get<ort::GetDimensionsCount>(61)(info, &rank));
    found.shape.resize(rank);
    check(api_.get<ort::GetDimensions>(62)(info, found.shape.data(), rank));
    api_.get<ort::ReleaseShape>(99)(info);
    check(api_.get<ort::GetTensorMutableData>(51)(value, &found.data));
    return found;
  }
  static void check(OrtStatus* status) {
    if (status) throw Failure{status};
  }

  const OrtApi& api_;
  OrtKernelContext* context_;
};

class Attributes {
 public:
  Attributes(const OrtApi& api, const OrtKernelInfo* info) : api_(api), info_(info) {}
  int64_t whole(const char* name) const {
    int64_t value = 0;
    check(api_.get<ort::GetAttributeInt>(86)(info_, name, &value));
    return value;
  }
  float real(const char* name) const {
    float value = 0;
    check(api_.get<ort::GetAttributeFloat>(85)(info_, name, &value));
    return value;
  }

 private:
  static void check(OrtStatus* status) {
    if (status) throw Failure{status};
  }
  const OrtApi& api_;
  const OrtKernelInfo* info_;
};

const Kernels& chosen() {
  static const Kernels& kernels = [] () -> const Kernels& {
    const char* wish = std::getenv("CONVOY_KERNELS_ISA");  // for tests of every path
    const Kernels* found = wish ? named(wish) : nullptr;
    return found ? *found : best();
  }();
  return kernels;
}

// x [.., K], packed weights [K, N], their scales [N] and maybe a bias [N] -> [.., N] (N / 2 after a GLU)
struct Int8Linear {
  static constexpr const char* NAME = "Int8Linear";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::INT8, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 3;

  explicit Int8Linear(const Attributes& a) : epilogue(static_cast<Epilogue>(a.whole("epilogue"))) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), w = run.input(1), scales = run.input(2), bias = run.input(3);
    const size_t k = x.last(), n = w.last(), m = x.size(0, x.shape.size() - 1);
    const Kernels& kernels = chosen();
    std::call_once(summed, [&] { sum(w.as<int8_t>(), k, n); });
    const bool gated = epilogue == Epilogue::glu;
    std::vector<int64_t> shape = x.shape;
    shape.back() = static_cast<int64_t>(gated ? n / 2 : n);
    const Tensor y = run.output(0, shape);
    const Weights weights{w.as<int8_t>(), scales.as<float>(), bias.as<float>(), sums.data()};
    // many rows go in bands, so that what was quantised and what waits for its gate stay in the cache; few do not,
    // for each band reads all the weights again
    const size_t band = m < 2 * BAND ? m : BAND, blocks = (n + 31) / 32;  // of twice 16 columns
    const auto bytes = std::make_unique_for_overwrite<uint8_t[]>(band * k);
    const auto steps = std::make_unique_for_overwrite<float[]>(band);
    const auto wide = std::make_unique_for_overwrite<float[]>(gated ? band * n : 0);
    for (size_t begin = 0; begin < m; begin += band) {
      const size_t rows = std::min(band, m - begin);
      run.each(rows, rows * k, [&](size_t from, size_t until) {
        for (size_t i = from; i < until; i++)
          kernels.quantize(x.as<float>() + (begin + i) * k, k, &bytes[i * k], &steps[i]);
      });
      float* out = gated ? wide.get() : y.as<float>() + begin * n;
      run.each(blocks, rows * k * n / 16, [&](size_t from, size_t until) {
        kernels.product({bytes.get(), steps.get()}, weights, rows, k, n, from * 32, std::min(until * 32, n), out, n,
                        epilogue == Epilogue::relu);
      });
      if (gated)
        run.each(rows, rows * n, [&](size_t from, size_t until) {
          for (size_t i = from; i < until; i++)
            kernels.glu(out + i * n, n / 2, y.as<float>() + (begin + i) * (n / 2));
        });
    }
  }

 private:
  static constexpr size_t BAND = 96;  // rows; a multiple of the tallest tile's

  // 128 times the sum of each column: what the offset of the bytes adds to a product
  void sum(const int8_t* packed, size_t k, size_t n) {
    sums.assign(n, 0);
    for (size_t column = 0; column < n; column += 16) {
      const size_t width = std::min<size_t>(16, n - column), rest = k % 4;
      const int8_t* b = packed + column * k;
      for (size_t g = 0; g < k / 4; g++)
        for (size_t i = 0; i < width; i++, b += 4)
          sums[column + i] += 128 * std::accumulate(b, b + 4, 0);
      for (size_t i = 0; i < width; i++, b += rest) sums[column + i] += 128 * std::accumulate(b, b + rest, 0);
    }
  }

  Epilogue epilogue;
  std::once_flag summed;
  std::vector<int32_t> sums;
};

// layer norm of x + residual, over the last axis
struct AddNorm {
  static constexpr const char* NAME = "AddNorm";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 4;

  explicit AddNorm(const Attributes& a) : eps(a.real("epsilon")) {}

  void run(const Run& run) {
    const Tensor x = run.input(0), r = run.input(1), gain = run.input(2), bias = run.input(3);
    const size_t n = x.last(), m = x.size() / n;
    const Tensor y = run.output(0, x.shape);
    run.each(m, m * n * 4, [&](size_t from, size_t until) {
      for (size_t i = from; i < until; i++)
        chosen().add_norm(x.as<float>() + i * n, r.as<float>() + i * n, gain.as<float>(), bias.as<float>(), eps, n,
                          y.as<float>() + i * n);
    });
  }

  float eps;
};

// The kernels of a convolution: [.., heads, K], one for each row, or [heads, K], the same for all.
struct Taps {
  Taps(const Tensor& taps, bool softmax)
      : data(taps.as<float>()), k(taps.last()), heads(static_cast<size_t>(taps.shape[taps.shape.size() - 2])),
        stride(taps.shape.size() == 2 ? 0 : heads * k), softmax(softmax) {}

  // those of row i; `own` has room for them
  const float* of(size_t i, std::vector<float>& own) const {
    const float* given = data + i * stride;
    if (!softmax) return given;
    for (size_t h = 0; h < heads; h++) chosen().softmax(given + h * k, k, &own[h * k]);
    return own.data();
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
      std::vector<const float*> rows(k);
      std::vector<float> own(kernels.heads * k);
      for (size_t i = from; i < until; i++) {
        for (size_t j = 0; j + 1 < k; j++)
          rows[j] = ring.as<float>() + static_cast<size_t>(index.as<int64_t>()[i * (k - 1) + j]) * c;
        rows[k - 1] = x.as<float>() + i * c;
        chosen().taps(rows.data(), kernels.of(i, own), kernels.heads, k, c, y.as<float>() + i * c);
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
      std::vector<const float*> rows(k);
      std::vector<float> own(kernels.heads * k);
      for (size_t i = from; i < until; i++) {
        const int64_t at = static_cast<int64_t>(i) % time;
        for (size_t j = 0; j < k; j++) {
          const int64_t t = at - left + static_cast<int64_t>(j);
          const bool inside = t >= 0 && t < time;
          rows[j] = inside ? x.as<float>() + (static_cast<int64_t>(i) - at + t) * static_cast<int64_t>(c) : nullptr;
        }
        chosen().taps(rows.data(), kernels.of(i, own), kernels.heads, k, c, y.as<float>() + i * c);
      }
    });
  }

  bool softmax;
  int64_t left;
};

// Queries q [slots, queries, D], keys [slots, heads, width, time], values [slots, heads, time, width], mask
// [slots, time] -> context [slots, queries, D] and weights, mean over heads, [slots, queries, time]
struct Attend {
  static constexpr const char* NAME = "Attend";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT, ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 4;

  explicit Attend(const Attributes&) {}

  void run(const Run& run) {
    const Tensor q = run.input(0), keys = run.input(1), values = run.input(2), mask = run.input(3);
    const size_t slots = static_cast<size_t>(q.shape[0]), queries = static_cast<size_t>(q.shape[1]), dim = q.last();
    const size_t heads = static_cast<size_t>(keys.shape[1]), width = dim / heads, time = keys.last();
    const Tensor context = run.output(0, q.shape);
    const Tensor mean = run.output(1, {q.shape[0], q.shape[1], static_cast<int64_t>(time)});
    run.each(slots, 4 * slots * queries * dim * time, [&](size_t from, size_t until) {
      std::vector<float> weights(queries * time);
      for (size_t s = from; s < until; s++) {
        const float* hidden = mask.as<float>() + s * time;
        size_t length = time;  // a source pays for its own length only
        while (length > 1 && hidden[length - 1] < -1e30f) length--;
        if (mean.data) std::fill_n(mean.as<float>() + s * queries * time, queries * time, 0.0f);
        for (size_t h = 0; h < heads; h++) {
          const size_t at = s * queries * dim + h * width, memory = (s * heads + h) * width * time;
          const Heads head{keys.as<float>() + memory, values.as<float>() + memory, hidden, width, time, length, dim};
          chosen().attend(head, q.as<float>() + at, queries, weights.data(), context.as<float>() + at);
          for (size_t i = 0; mean.data && i < queries; i++) {
            float* row = mean.as<float>() + (s * queries + i) * time;
            for (size_t t = 0; t < length; t++) row[t] += weights[i * time + t] / static_cast<float>(heads);
          }
        }
      }
    });
  }
};

// The end of a step (engine/models/select.py): logits [slots, beams, vocab], forced [slots, beams], banned [slots,
// beams, M], unk and eos penalties [slots], k [1] -> scores and ids [slots, beams, k]
struct Select {
  static constexpr const char* NAME = "Select";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::INT64, ort::INT64, ort::FLOAT, ort::FLOAT, ort::INT64};
  static constexpr int OUTPUTS[] = {ort::FLOAT, ort::INT64};
  static constexpr size_t OPTIONAL_FROM = 6;

  explicit Select(const Attributes& a) : unk(a.whole("unk")), eos(a.whole("eos")) {}

  void run(const Run& run) {
    const Tensor logits = run.input(0), forced = run.input(1), banned = run.input(2), unk_penalty = run.input(3),
                 eos_penalty = run.input(4);
    const size_t k = static_cast<size_t>(*run.input(5).as<int64_t>()), vocab = logits.last();
    const size_t rows = logits.size() / vocab, beams = static_cast<size_t>(logits.shape[1]);
    std::vector<float> unk_of(rows), eos_of(rows);
    for (size_t i = 0; i < rows; i++) {
      unk_of[i] = unk_penalty.as<float>()[i / beams];
      eos_of[i] = eos_penalty.as<float>()[i / beams];
    }
    const Selection selection{logits.as<float>(), forced.as<int64_t>(), banned.as<int64_t>(), unk_of.data(),
                              eos_of.data(),      vocab,                banned.last(),        k,
                              unk,                eos};
    const std::vector<int64_t> shape{logits.shape[0], logits.shape[1], static_cast<int64_t>(k)};
    const Tensor scores = run.output(0, shape), ids = run.output(1, shape);
    run.each(rows, rows * vocab * 8, [&](size_t from, size_t until) {
      std::vector<float> scratch(vocab / 64 + 1);
      for (size_t i = from; i < until; i++)
        chosen().select(selection, i, scores.as<float>() + i * k, ids.as<int64_t>() + i * k, scratch.data());
    });
  }

  int64_t unk, eos;
};

// An operator's struct as ONNX Runtime wants to see it.
template <typename Op>
struct Registered : ort::CustomOp {
  struct Kernel {
    const OrtApi& api;
    Op op;
  };

  Registered() : ort::CustomOp{} {
    version = ort::VERSION;
    GetName = [](const CustomOp*) { return Op::NAME; };
    GetExecutionProviderType = [](const CustomOp*) { return static_cast<const char*>(nullptr); };
    GetInputTypeCount = [](const CustomOp*) { return std::size(Op::INPUTS); };
    GetInputType = [](const CustomOp*, size_t at) { return Op::INPUTS[at]; };
    GetOutputTypeCount = [](const CustomOp*) { return std::size(Op::OUTPUTS); };
    GetOutputType = [](const CustomOp*, size_t at) { return Op::OUTPUTS[at]; };
    GetInputCharacteristic = [](const CustomOp*, size_t at) {
      return static_cast<int>(at < Op::OPTIONAL_FROM ? ort::REQUIRED : ort::OPTIONAL);
    };
    GetOutputCharacteristic = [](const CustomOp*, size_t at) {
      return static_cast<int>(at ? ort::OPTIONAL : ort::REQUIRED);
    };
    GetInputMemoryType = [](const CustomOp*, size_t) { return 0; };
    GetVariadicInputMinArity = GetVariadicInputHomogeneity = [](const CustomOp*) { return 1; };
    GetVariadicOutputMinArity = GetVariadicOutputHomogeneity = [](const CustomOp*) { return 1; };
    GetStartVersion = [](const CustomOp*) { return 1; };
    GetEndVersion = [](const CustomOp*) { return 0x7fffffff; };
    CreateKernelV2 = [](const CustomOp*, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
      return guarded(*api, [&] { *kernel = new Kernel{*api, Op(Attributes(*api, info))}; });
    };
    KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
      auto& made = *static_cast<Kernel*>(kernel);
      return guarded(made.api, [&] { made.op.run(Run(made.api, context)); });
    };
    KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  }

  template <typename Call>
  static OrtStatus* guarded(const OrtApi& api, Call call) {
    try {
      call();
      return nullptr;
    } catch (const Failure& failure) {
      return failure.status;
    } catch (const std::exception& error) {
      return api.get<ort::CreateStatus>(0)(1, error.what());
    }
  }
};

}  // namespace
}  // namespace convoy

extern "C" __attribute__((visibility("default"))) const char* convoy_kernels() { return convoy::chosen().name; }

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  using namespace convoy;
  static const Registered<Int8Linear> int8_linear;
  static const Registered<AddNorm> add_norm;
  static const Registered<DynamicConvStep> step;
  static const Registered<DynamicConv> conv;
  static const Registered<Attend> attend;
  static const Registered<Select> select;
  const ort::CustomOp* const operators[] = {&int8_linear, &add_norm, &step, &conv, &attend, &select};
  const OrtApi* api = base->GetApi(ort::VERSION);
  OrtCustomOpDomain* domain = nullptr;
  if (OrtStatus* status = api->get<ort::CreateCustomOpDomain>(26)("convoy", &domain)) return status;
  for (const ort::CustomOp* op : operators)
    if (OrtStatus* status = api->get<ort::CustomOpDomainAdd>(27)(domain, op)) return status;
  return api->get<ort::AddCustomOpDomain>(28)(options, domain);
}
