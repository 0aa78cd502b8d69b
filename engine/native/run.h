// The interface of operators to ONNX Runtime: inputs, outputs, attributes, threads and registration. A family of
// operators is a file that includes this and ends with a function that returns `Operators`; ops.cpp lists these.
#pragma once

#include <algorithm>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "kernels.h"
#include "ort.h"

namespace convoy {

using Operators = std::vector<const ort::CustomOp*>;
const Kernels& chosen();  // the kernels that this process uses

namespace {

constexpr size_t GRAIN = 1 << 16;  // multiplications from which another thread pays off

struct Failure {
  OrtStatus* status;
};

// Sizes of a tensor; on the stack, because a step makes thousands of them.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : rank_(sizes.size()) { std::copy(sizes.begin(), sizes.end(), sizes_); }

  // Sets the number of sizes. Throws if it exceeds that of all operators.
  void resize(size_t rank) {
    if (rank > std::size(sizes_)) throw std::length_error("a tensor of more axes than the operators take");
    rank_ = rank;
  }
  size_t size() const { return rank_; }
  int64_t* data() { return sizes_; }
  const int64_t* data() const { return sizes_; }
  int64_t& back() { return sizes_[rank_ - 1]; }
  int64_t back() const { return sizes_[rank_ - 1]; }
  int64_t operator[](size_t at) const { return sizes_[at]; }

 private:
  int64_t sizes_[6] = {};
  size_t rank_ = 0;
};

struct Tensor {
  Shape shape;
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

inline void check(OrtStatus* status) {
  if (status) throw Failure{status};
}

inline Tensor view(const OrtApi& api, const OrtValue* value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  size_t rank = 0;
  Tensor seen;
  check(api.get<ort::GetTensorTypeAndShape>(65)(value, &info));
  check(api.get<ort::GetDimensionsCount>(61)(info, &rank));
  seen.shape.resize(rank);
  check(api.get<ort::GetDimensions>(62)(info, seen.shape.data(), rank));
  api.get<ort::ReleaseShape>(99)(info);
  check(api.get<ort::GetTensorMutableData>(51)(value, &seen.data));
  return seen;
}

// One run of one operator.
class Run {
 public:
  Run(const OrtApi& api, OrtKernelContext* context) : api_(api), context_(context) {}

  Tensor input(size_t at) const {
    const OrtValue* value = nullptr;
    check(api_.get<ort::GetInput>(90)(context_, at, &value));
    return value ? view(api_, value) : Tensor{};
  }
  // Returns `constant`, or the input if it was not a constant when the operator was made.
  Tensor input(size_t at, const Tensor& constant) const { return constant.data ? constant : input(at); }
  Tensor output(size_t at, const Shape& shape) const {
    OrtValue* value = nullptr;
    check(api_.get<ort::GetOutput>(91)(context_, at, shape.data(), shape.size(), &value));
    Tensor made{shape, nullptr};
    if (value) check(api_.get<ort::GetTensorMutableData>(51)(value, &made.data));
    return made;
  }
  // Calls body(from, until) over 0..total, in parallel if there is enough work.
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
  const OrtApi& api_;
  OrtKernelContext* context_;
};

// Memory for n elements that a thread keeps between runs, not shared with operators of another USER.
template <typename USER, typename T>
T* scratch(size_t n) {
  static thread_local std::vector<T> kept;
  if (kept.size() < n) kept.resize(n);
  return kept.data();
}

class Attributes {
 public:
  Attributes(const OrtApi& api, const OrtKernelInfo* info) : api_(api), info_(info) {}
  int64_t whole(const char* name) const {
    int64_t value = 0;
    check(api_.get<ort::GetAttributeInt>(86)(info_, name, &value));
    return value;
  }
  // Returns an attribute, or `otherwise` for older graphs without it.
  int64_t whole(const char* name, int64_t otherwise) const {
    int64_t value = 0;
    OrtStatus* status = api_.get<ort::GetAttributeInt>(86)(info_, name, &value);
    if (status) api_.get<ort::ReleaseStatus>(93)(status);
    return status ? otherwise : value;
  }
  float real(const char* name) const {
    float value = 0;
    check(api_.get<ort::GetAttributeFloat>(85)(info_, name, &value));
    return value;
  }
  // Returns an input that is a weight of the graph, which never changes; without data otherwise.
  Tensor constant(size_t at) const {
    const OrtValue* value = nullptr;
    int is = 0;
    check(api_.get<ort::GetConstantInput>(249)(info_, at, &is, &value));
    return is && value ? view(api_, value) : Tensor{};
  }

 private:
  const OrtApi& api_;
  const OrtKernelInfo* info_;
};

// Adapts an operator's struct to ONNX Runtime's interface.
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

template <typename... Ops>
Operators operators() {
  static const std::tuple<Registered<Ops>...> all;
  return std::apply([](const auto&... op) { return Operators{&op...}; }, all);
}

}  // namespace
}  // namespace convoy
