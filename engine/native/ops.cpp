// The kernels as operators of ONNX Runtime, domain "convoy". What each computes stands in export/ops.py, where
// the same functions are made of standard operators.
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "products.h"
#include "run.h"

namespace convoy {
namespace {

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
      std::vector<const float*> rows(2 * k);  // of this hypothesis and of the next
      std::vector<float> own(kernels.heads * k);
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
      std::vector<const float*> rows(k);
      std::vector<float> own(kernels.heads * k);
      for (size_t i = from; i < until; i++) {
        const int64_t at = static_cast<int64_t>(i) % time;
        for (size_t j = 0; j < k; j++) {
          const int64_t t = at - left + static_cast<int64_t>(j);
          const bool inside = t >= 0 && t < time;
          rows[j] = inside ? x.as<float>() + (static_cast<int64_t>(i) - at + t) * static_cast<int64_t>(c) : nullptr;
        }
        chosen().taps(rows.data(), nullptr, kernels.of(i, own), kernels.heads, k, c, y.as<float>() + i * c);
      }
    });
  }

  bool softmax;
  int64_t left;
};

// Queries q [slots, queries, D], which are scaled first, keys [slots, heads, width, time], values [slots, heads, time, width], mask
// [slots, time] -> context [slots, queries, D] and weights, mean over heads, [slots, queries, time]
struct Attend {
  static constexpr const char* NAME = "Attend";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT, ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 4;

  explicit Attend(const Attributes& a) : scale(a.real("scale")) {}

  void run(const Run& run) {
    const Tensor q = run.input(0), keys = run.input(1), values = run.input(2), mask = run.input(3);
    const size_t slots = static_cast<size_t>(q.shape[0]), queries = static_cast<size_t>(q.shape[1]), dim = q.last();
    const size_t heads = static_cast<size_t>(keys.shape[1]), width = dim / heads, time = keys.last();
    const Tensor context = run.output(0, q.shape);
    const Tensor mean = run.output(1, {q.shape[0], q.shape[1], static_cast<int64_t>(time)});
    run.each(slots, 4 * slots * queries * dim * time, [&](size_t from, size_t until) {
      std::vector<float> weights(queries * time), scaled(queries * dim);
      for (size_t s = from; s < until; s++) {
        for (size_t i = 0; i < queries * dim; i++) scaled[i] = scale * q.as<float>()[s * queries * dim + i];
        const float* hidden = mask.as<float>() + s * time;
        size_t length = time;  // a source pays for its own length only
        while (length > 1 && hidden[length - 1] < -1e30f) length--;
        if (mean.data) std::fill_n(mean.as<float>() + s * queries * time, queries * time, 0.0f);
        for (size_t h = 0; h < heads; h++) {
          const size_t at = s * queries * dim + h * width, memory = (s * heads + h) * width * time;
          const Heads head{keys.as<float>() + memory, values.as<float>() + memory, hidden, width, time, length, dim};
          chosen().attend(head, &scaled[h * width], queries, weights.data(), context.as<float>() + at);
          for (size_t i = 0; mean.data && i < queries; i++) {
            float* row = mean.as<float>() + (s * queries + i) * time;
            for (size_t t = 0; t < length; t++) row[t] += weights[i * time + t] / static_cast<float>(heads);
          }
        }
      }
    });
  }

  float scale;
};

// The end of a step (engine/models/select.py): logits [slots, beams, vocab], forced [slots, beams], banned [slots,
// beams, M], unk and eos penalties [slots], k [1] -> scores and ids [slots, beams, k]. With a list of tokens for each
// slot, [slots, W], logits are in its order.
struct Select {
  static constexpr const char* NAME = "Select";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::INT64, ort::INT64, ort::FLOAT, ort::FLOAT, ort::INT64, ort::INT64};
  static constexpr int OUTPUTS[] = {ort::FLOAT, ort::INT64};
  static constexpr size_t OPTIONAL_FROM = 6;

  explicit Select(const Attributes& a) : unk(a.whole("unk")), eos(a.whole("eos")) {}

  void run(const Run& run) {
    const Tensor logits = run.input(0), forced = run.input(1), banned = run.input(2), unk_penalty = run.input(3),
                 eos_penalty = run.input(4), among = run.input(6);
    const size_t k = static_cast<size_t>(*run.input(5).as<int64_t>()), vocab = logits.last(), bans = banned.last();
    const size_t rows = logits.size() / vocab, beams = static_cast<size_t>(logits.shape[1]);
    const std::vector<int64_t> shape{logits.shape[0], logits.shape[1], static_cast<int64_t>(k)};
    const Tensor scores = run.output(0, shape), ids = run.output(1, shape);
    run.each(rows, rows * vocab * 8, [&](size_t from, size_t until) {
      std::vector<float> scratch(vocab / 64 + 1);
      std::vector<int64_t> places(among.data ? bans : 0);
      for (size_t i = from; i < until; i++) {
        Selection selection{.logits = logits.as<float>() + i * vocab,
                            .banned = banned.as<int64_t>() + i * bans,
                            .vocab = vocab,
                            .bans = bans,
                            .k = k,
                            .unk_penalty = unk_penalty.as<float>()[i / beams],
                            .eos_penalty = eos_penalty.as<float>()[i / beams],
                            .forced = forced.as<int64_t>()[i],
                            .unk = unk,
                            .eos = eos};
        float* best = scores.as<float>() + i * k;
        int64_t* at = ids.as<int64_t>() + i * k;
        if (!among.data) {
          chosen().select(selection, best, at, scratch.data());
          continue;
        }
        const int64_t* list = among.as<int64_t>() + i / beams * vocab;
        auto place = [&](int64_t id) {  // in the list, or -1
          const int64_t* found = id < 0 ? list + vocab : std::find(list, list + vocab, id);
          return found == list + vocab ? int64_t{-1} : found - list;
        };
        for (size_t j = 0; j < bans; j++) places[j] = place(selection.banned[j]);
        selection.banned = places.data();
        selection.forced = place(selection.forced);
        selection.unk = place(unk);
        selection.eos = place(eos);
        chosen().select(selection, best, at, scratch.data());
        for (size_t j = 0; j < k; j++) at[j] = std::max<int64_t>(list[at[j]], 0);
      }
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
  static const Registered<Linear> linear;
  static const Registered<AddNorm> add_norm;
  static const Registered<DynamicConvStep> step;
  static const Registered<DynamicConv> conv;
  static const Registered<Attend> attend;
  static const Registered<Select> select;
  static const Registered<Int8Among> int8_among;
  static const Registered<Among> among;
  const ort::CustomOp* const operators[] = {&int8_linear, &linear, &add_norm,   &step, &conv,
                                            &attend,      &select, &int8_among, &among};
  const OrtApi* api = base->GetApi(ort::VERSION);
  OrtCustomOpDomain* domain = nullptr;
  if (OrtStatus* status = api->get<ort::CreateCustomOpDomain>(26)("convoy", &domain)) return status;
  for (const ort::CustomOp* op : operators)
    if (OrtStatus* status = api->get<ort::CustomOpDomainAdd>(27)(domain, op)) return status;
  return api->get<ort::AddCustomOpDomain>(28)(options, domain);
}
