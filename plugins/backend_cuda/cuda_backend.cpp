#include "cuda_backend.h"

#include <algorithm>
#include <string>

#include "ceilings.h"
#include "elementwise.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/register.h"

namespace tessera_cuda {

namespace sdk = tessera::sdk;
using sdk::Code;
using sdk::cuda_status;
using sdk::Status;

CudaBackend::CudaBackend(sdk::Host& host, Status& status) {
  std::int64_t device = 0;
  status = host.option_int("device", 0, 0, 1023, &device);
  if (!status.ok()) return;
  device_ = static_cast<int>(device);
  status = open_device();
}

CudaBackend::~CudaBackend() {
  if (stream_ == nullptr) return;
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream_);
  for (const auto& [id, graph] : graphs_) cudaGraphExecDestroy(graph);
  for (void* block : blocks_) cudaFree(block);
  cudaFree(split_.partials);
  cudaFree(split_.tickets);
  cudaStreamDestroy(stream_);
}

Status CudaBackend::open_device() noexcept {
  return sdk::guarded([&]() -> Status {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
      return sdk::fail(Code::unsupported, std::string("backend cuda: no CUDA device can be used (") +
                                              cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error) +
                                              "); use backend.name: cpu");
    if (device_ >= count)
      return sdk::fail(Code::invalid_argument, "backend cuda: option device is " + std::to_string(device_) + " but " +
                                                   std::to_string(count) + " CUDA devices are there, counted from 0");
    if (Status status = select(); !status.ok()) return status;
    const Status compiled = cuda_status(configure_few(), "backend cuda: finding kernels for this GPU");
    if (!compiled.ok()) return compiled;
    if (Status status = cuda_status(configure_many(), "backend cuda: sizing shared memory"); !status.ok())
      return status;
    const Status known = cuda_status(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device_),
                                     "cudaDeviceGetAttribute");
    if (!known.ok()) return known;
    const Status made =
        cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    if (made.ok()) rounds_.open(device_, stream_);
    return made;
  });
}

Status CudaBackend::select() const noexcept { return cuda_status(cudaSetDevice(device_), "cudaSetDevice"); }

Status CudaBackend::bind(const sdk::StepLimits& limits) noexcept {
  if (Status status = select(); !status.ok()) return status;
  if (Status status = step_.bind(limits); !status.ok()) return status;
  if (Status status = copies_.bind(); !status.ok()) return status;
  if (Status status = downloader_.bind(); !status.ok()) return status;
  return cuda_status(cudaMalloc(reinterpret_cast<void**>(&split_.tickets), kSplitTiles * sizeof(unsigned)),
                     "cudaMalloc");
}

sdk::DeviceContext CudaBackend::context() noexcept {
  return {sdk::Device::cuda, sdk::CpuIsa::scalar, nullptr, stream_};
}

Status CudaBackend::memory(std::size_t* total, std::size_t* free) noexcept {
  if (Status status = select(); !status.ok()) return status;
  return cuda_status(cudaMemGetInfo(free, total), "cudaMemGetInfo");
}

Status CudaBackend::allocate(std::size_t bytes, void** device) noexcept {
  return sdk::guarded([&]() -> Status {
    if (Status status = select(); !status.ok()) return status;
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    const std::string what = "backend cuda: claiming " + std::to_string(size >> 20) + " MiB of device memory";
    blocks_.reserve(blocks_.size() + 1);
    void* data = nullptr;
    if (Status status = cuda_status(cudaMalloc(&data, size), what.c_str()); !status.ok()) return status;
    blocks_.push_back(data);
    *device = data;
    cudaError_t error = cudaMemsetAsync(data, 0, size, stream_);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
    return cuda_status(error, "cudaMemset");
  });
}

Status CudaBackend::upload(void* device, const void* host, std::size_t bytes) noexcept {
  if (Status status = select(); !status.ok()) return status;
  cudaError_t error = cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
  return cuda_status(error, "cudaMemcpy to the device");
}

Status CudaBackend::download(void* host, const void* device, std::size_t bytes) noexcept {
  if (Status status = select(); !status.ok()) return status;
  return downloader_.fetch(host, device, bytes, stream_);
}

Status CudaBackend::claim_split_space(std::int32_t segments) noexcept {
  if (segments <= split_segments_) return {};
  cudaFree(split_.partials);
  split_.partials = nullptr;
  split_segments_ = 0;
  const std::size_t bytes = sizeof(float) * kPartials * static_cast<std::size_t>(segments);
  cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&split_.partials), bytes);
  if (error == cudaSuccess) error = cudaMemsetAsync(split_.tickets, 0, kSplitTiles * sizeof(unsigned), stream_);
  if (error == cudaSuccess) split_segments_ = segments;
  return cuda_status(error, "backend cuda: claiming memory for partial sums");
}

Status CudaBackend::prepare_linear(const sdk::HostMatrix* parts, std::size_t count, const float* bias,
                                   const sdk::Linear** out) noexcept {
  return sdk::guarded([&]() -> Status {
    if (count == 0 || parts[0].cols <= 0)
      return sdk::fail(Code::invalid_argument, "a linear weight has no parts or no inputs");
    const sdk::DType stored = parts[0].dtype;
    if (stored != sdk::DType::f32 && stored != sdk::DType::bf16 && stored != sdk::DType::f16)
      return sdk::fail(Code::unsupported,
                       std::string("weights of type ") + sdk::dtype_name(stored) + "; wanted f32, bf16 or f16");
    std::int32_t outputs = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (parts[i].dtype != stored || parts[i].cols != parts[0].cols)
        return sdk::fail(Code::invalid_argument, "parts of one linear weight differ in type or inputs");
      outputs += parts[i].rows;
    }
    auto weight = std::make_unique<Weight>();
    PackedLinear& packed = weight->packed;
    packed = {nullptr, nullptr, stored == sdk::DType::bf16, outputs, parts[0].cols};
    if (Status status = claim_split_space(packed.segments()); !status.ok()) return status;
    if (Status status = allocate(packed.bytes(), &packed.data); !status.ok()) return status;
    if (Status status = pack(parts, count, packed); !status.ok()) return status;
    if (bias != nullptr) {
      const std::size_t size = static_cast<std::size_t>(outputs) * sizeof(float);
      void* kept = nullptr;
      if (Status status = allocate(size, &kept); !status.ok()) return status;
      if (Status status = upload(kept, bias, size); !status.ok()) return status;
      packed.bias = static_cast<const float*>(kept);
    }
    weight->outputs = outputs;
    weight->inputs = packed.inputs;
    weight->dtype = packed.bf16 ? sdk::DType::bf16 : sdk::DType::f32;
    weight->bytes = packed.bytes();
    *out = weight.get();
    weights_.push_back(std::move(weight));
    return {};
  });
}

Status CudaBackend::pack(const sdk::HostMatrix* parts, std::size_t count, const PackedLinear& packed) {
  std::int32_t first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const sdk::HostMatrix& part = parts[i];
    const std::size_t bytes =
        static_cast<std::size_t>(part.rows) * static_cast<std::size_t>(part.cols) * sdk::dtype_bytes(part.dtype);
    if (bytes == 0) continue;
    void* staged = nullptr;  // as stored; only while it is being packed
    Status status = cuda_status(cudaMalloc(&staged, bytes), "backend cuda: claiming memory to pack a weight");
    if (!status.ok()) return status;
    status = upload(staged, part.data, bytes);
    if (status.ok())
      status = cuda_status(pack_rows(packed, staged, part.dtype, first, part.rows, stream_), "packing a weight");
    if (status.ok()) status = cuda_status(cudaStreamSynchronize(stream_), "packing a weight");
    cudaFree(staged);
    if (!status.ok()) return status;
    first += part.rows;
  }
  return {};
}

Status CudaBackend::begin_step(const sdk::PackedRows& host, sdk::PackedRows* device) noexcept {
  if (Status status = select(); !status.ok()) return status;
  return step_.send(host, stream_, device);
}

Status CudaBackend::embed(const sdk::Linear& table, const sdk::PackedRows& rows, const sdk::Matrix& out) noexcept {
  return cuda_status(tessera_cuda::embed(static_cast<const Weight&>(table).packed, rows, out, stream_),
                     "backend cuda: embed");
}

Status CudaBackend::rms_norm(const sdk::NormArgs& args) noexcept {
  return cuda_status(tessera_cuda::rms_norm(args, stream_), "backend cuda: rms_norm");
}

Status CudaBackend::linear(const sdk::Linear& weight, const sdk::Matrix& x, const sdk::Matrix& y) noexcept {
  const PackedLinear& packed = static_cast<const Weight&>(weight).packed;
  return cuda_status(tessera_cuda::linear(packed, x, y, split_, processors_, stream_), "backend cuda: linear");
}

Status CudaBackend::rotary_append(const sdk::RotaryArgs& args) noexcept {
  return cuda_status(tessera_cuda::rotary_append(args, stream_), "backend cuda: rotary_append");
}

Status CudaBackend::swiglu(const sdk::Matrix& gate_up, const sdk::Matrix& out) noexcept {
  return cuda_status(tessera_cuda::swiglu(gate_up, out, stream_), "backend cuda: swiglu");
}

Status CudaBackend::gather(const sdk::Matrix& x, const sdk::Matrix* delta, const sdk::PackedRows& rows,
                           const sdk::Matrix& out) noexcept {
  return cuda_status(tessera_cuda::gather(x, delta, rows, out, stream_), "backend cuda: gather");
}

Status CudaBackend::load_states(const sdk::Matrix& bank, const sdk::PackedRows& rows, const sdk::Matrix& out) noexcept {
  return cuda_status(tessera_cuda::load_states(bank, rows, out, stream_), "backend cuda: load_states");
}

Status CudaBackend::store_states(const sdk::Matrix& x, const sdk::PackedRows& rows, const sdk::Matrix& bank) noexcept {
  return cuda_status(tessera_cuda::store_states(x, rows, bank, stream_), "backend cuda: store_states");
}

Status CudaBackend::copy_kv(const sdk::KvView& kv, const sdk::KvCopy* copies, std::int32_t count) noexcept {
  for (std::int32_t done = 0; done < count;) {
    const sdk::KvCopy* device = nullptr;
    std::int32_t part = 0;
    const Status status = copies_.send(copies + done, count - done, stream_, &device, &part);
    if (!status.ok()) return status;
    const Status copied = cuda_status(tessera_cuda::copy_kv(kv, device, part, stream_), "backend cuda: copy_kv");
    if (!copied.ok()) return copied;
    done += part;
  }
  return {};
}

Status CudaBackend::measure_ceilings(sdk::Ceilings* out) noexcept {
  constexpr std::size_t kBytes = std::size_t{1} << 30;  // no cache holds a tenth of it
  *out = {};
  if (Status status = select(); !status.ok()) return status;
  void* memory = nullptr;
  Status status = cuda_status(cudaMalloc(&memory, kBytes), "backend cuda: memory to measure reads with");
  if (!status.ok()) return status;
  cudaMemsetAsync(memory, 0, kBytes, stream_);
  status = cuda_status(
      tessera_cuda::measure_ceilings(memory, kBytes, static_cast<float*>(memory), processors_, stream_, out),
      "backend cuda: measuring the device");
  cudaFree(memory);
  return status;
}

Status CudaBackend::capture_begin() noexcept {
  return cuda_status(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
}

Status CudaBackend::capture_end(std::uint64_t* graph) noexcept {
  return sdk::guarded([&]() -> Status {
    cudaGraph_t recorded = nullptr;
    const Status ended = cuda_status(cudaStreamEndCapture(stream_, &recorded), "cudaStreamEndCapture");
    if (!ended.ok()) return ended;
    cudaGraphExec_t& ready = graphs_[++recorded_];
    const Status made = cuda_status(cudaGraphInstantiate(&ready, recorded, 0), "cudaGraphInstantiate");
    cudaGraphDestroy(recorded);
    if (!made.ok()) graphs_.erase(recorded_);
    *graph = made.ok() ? recorded_ : 0;
    return made;
  });
}

Status CudaBackend::replay(std::uint64_t graph) noexcept {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end())
    return sdk::fail(Code::invalid_argument, "backend cuda: there is no recorded graph of this id");
  return cuda_status(cudaGraphLaunch(found->second, stream_), "cudaGraphLaunch");
}

Status CudaBackend::forget(std::uint64_t graph) noexcept {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end())
    return sdk::fail(Code::invalid_argument, "backend cuda: there is no recorded graph of this id");
  const cudaError_t error = cudaGraphExecDestroy(found->second);  // once it has run
  graphs_.erase(found);
  return cuda_status(error, "cudaGraphExecDestroy");
}

}  // namespace tessera_cuda

TESSERA_REGISTER_PLUGIN(tessera::sdk::Backend, tessera_cuda::CudaBackend, tessera::sdk::Device::cuda, "cuda", "0.1.0",
                        tessera::sdk::Traits{tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant |
                                                 tessera::sdk::kPortableBits | tessera::sdk::kGraphCapturable,
                                             1u << static_cast<unsigned>(tessera::sdk::DType::f32), 0, 0,
                                             TESSERA_GPU_ARCHITECTURES})
