// The part of ONNX Runtime's C interface that custom operators need. Its tables of functions only grow at the end, so
// the index of an entry never changes; the library needs no header of the version that loads it.
#pragma once

#include <cstddef>
#include <cstdint>

struct OrtStatus;
struct OrtValue;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtTensorTypeAndShapeInfo;

struct OrtApi {
  const void* entries[275];

  template <typename Function>
  Function* get(size_t number) const {
    return reinterpret_cast<Function*>(const_cast<void*>(entries[number]));
  }
};

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

namespace ort {

constexpr uint32_t VERSION = 17;  // the first version with all these functions (ONNX Runtime 1.17)
enum Element { FLOAT = 1, INT8 = 3, INT64 = 7 };
enum Presence { REQUIRED = 0, OPTIONAL = 1 };

using CreateStatus = OrtStatus*(int code, const char* message);                                  // 0
using CreateCustomOpDomain = OrtStatus*(const char* domain, OrtCustomOpDomain** out);            // 26
using CustomOpDomainAdd = OrtStatus*(OrtCustomOpDomain* domain, const struct CustomOp* op);      // 27
using AddCustomOpDomain = OrtStatus*(OrtSessionOptions* options, OrtCustomOpDomain* domain);     // 28
using GetTensorMutableData = OrtStatus*(const OrtValue* value, void** out);                      // 51
using GetDimensionsCount = OrtStatus*(const OrtTensorTypeAndShapeInfo* info, size_t* out);       // 61
using GetDimensions = OrtStatus*(const OrtTensorTypeAndShapeInfo* info, int64_t* out, size_t n); // 62
using GetTensorTypeAndShape = OrtStatus*(const OrtValue* value, OrtTensorTypeAndShapeInfo** out);// 65
using GetAttributeFloat = OrtStatus*(const OrtKernelInfo* info, const char* name, float* out);   // 85
using GetAttributeInt = OrtStatus*(const OrtKernelInfo* info, const char* name, int64_t* out);   // 86
using GetInputCount = OrtStatus*(const OrtKernelContext* context, size_t* out);                  // 88
using GetInput = OrtStatus*(const OrtKernelContext* context, size_t at, const OrtValue** out);   // 90
using GetOutput = OrtStatus*(OrtKernelContext* context, size_t at, const int64_t* shape, size_t rank,
                             OrtValue** out);                                                    // 91
using ReleaseStatus = void(OrtStatus* status);                                                   // 93
using ReleaseShape = void(OrtTensorTypeAndShapeInfo* info);                                      // 99
using GetConstantInput = OrtStatus*(const OrtKernelInfo* info, size_t at, int* constant, const OrtValue** out);  // 249
using ParallelFor = OrtStatus*(const OrtKernelContext* context, void (*body)(void* data, size_t at),
                               size_t total, size_t batches, void* data);                        // 274

// The description of a custom operator, in ONNX Runtime's order.
struct CustomOp {
  uint32_t version;
  void* (*CreateKernel)(const CustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char* (*GetName)(const CustomOp*);
  const char* (*GetExecutionProviderType)(const CustomOp*);
  int (*GetInputType)(const CustomOp*, size_t);
  size_t (*GetInputTypeCount)(const CustomOp*);
  int (*GetOutputType)(const CustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const CustomOp*);
  void (*KernelCompute)(void* kernel, OrtKernelContext*);
  void (*KernelDestroy)(void* kernel);
  int (*GetInputCharacteristic)(const CustomOp*, size_t);
  int (*GetOutputCharacteristic)(const CustomOp*, size_t);
  int (*GetInputMemoryType)(const CustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const CustomOp*);
  int (*GetVariadicInputHomogeneity)(const CustomOp*);
  int (*GetVariadicOutputMinArity)(const CustomOp*);
  int (*GetVariadicOutputHomogeneity)(const CustomOp*);
  OrtStatus* (*CreateKernelV2)(const CustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext*);
  OrtStatus* (*InferOutputShape)(const CustomOp*, void* context);
  int (*GetStartVersion)(const CustomOp*);
  int (*GetEndVersion)(const CustomOp*);
};

}  // namespace ort
