#include "staging.h"

#include <algorithm>
#include <cstring>

#include "tessera/sdk/cuda.h"

namespace tessera_cuda {

namespace sdk = tessera::sdk;
using sdk::cuda_status;
using sdk::Status;

StepStaging::~StepStaging() {
  for (const Pinned& bank : banks_) {
    if (bank.sent != nullptr) cudaEventDestroy(bank.sent);
    cudaFreeHost(bank.data);
  }
  cudaFree(device_);
}

Status StepStaging::bind(const sdk::StepLimits& limits, std::int32_t banks, bool sourced) noexcept {
  return sdk::guarded([&]() -> Status {
    limits_ = limits;
    std::size_t end = 0;
    const auto claim = [&end](std::int32_t count, std::size_t element) {
      const std::size_t begin = end;
      end += (static_cast<std::size_t>(count) * element + 255) / 256 * 256;
      return begin;
    };
    constexpr std::size_t kInt = sizeof(std::int32_t);
    at_.tokens = claim(limits.max_rows, kInt);
    at_.positions = claim(limits.max_rows, kInt);
    at_.row_slice = claim(limits.max_rows, kInt);
    at_.states = claim(limits.max_rows, kInt);
    at_.references = claim(limits.max_rows, kInt);
    at_.list_first = claim(limits.max_rows, kInt);
    at_.slices = claim(limits.max_slices, sizeof(sdk::Slice));
    at_.logit_rows = claim(limits.max_logit_rows, kInt);
    at_.row_sources = claim(sourced ? limits.max_rows : 0, sizeof(sdk::RowSource));
    at_.slice_sources = claim(sourced ? limits.max_slices : 0, sizeof(sdk::RowSource));
    at_.list_pages = claim(limits.max_list_pages, kInt);
    at_.pages = claim(limits.max_pages, kInt);
    at_.bytes = end;
    banks_.resize(static_cast<std::size_t>(banks));
    cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&device_), at_.bytes);
    for (Pinned& bank : banks_) {
      if (error == cudaSuccess) error = cudaMallocHost(reinterpret_cast<void**>(&bank.data), at_.bytes);
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(&bank.sent, cudaEventDisableTiming);
    }
    return cuda_status(error, "backend cuda: claiming the buffers of a step's metadata");
  });
}

Status StepStaging::send(const sdk::PackedRows& host, cudaStream_t stream, sdk::PackedRows* device, std::int32_t index,
                         const SourceRows& sources) noexcept {
  if (host.num_rows > limits_.max_rows || host.num_slices > limits_.max_slices || host.num_pages > limits_.max_pages ||
      host.num_logit_rows > limits_.max_logit_rows || host.num_list_pages > limits_.max_list_pages)
    return sdk::fail(sdk::Code::invalid_argument, "backend cuda: the step exceeds the limits given to bind");
  const Pinned& bank = banks_[static_cast<std::size_t>(index)];
  Status status = cuda_status(cudaEventSynchronize(bank.sent), "cudaEventSynchronize");
  if (!status.ok()) return status;
  *device = host;
  const auto fill = [&bank](const auto* field, std::size_t at, std::int32_t count) {
    if (count > 0) std::memcpy(bank.data + at, field, static_cast<std::size_t>(count) * sizeof *field);
  };
  const auto put = [&](auto*& field, std::size_t at, std::int32_t count) {
    fill(field, at, count);
    field = reinterpret_cast<decltype(+field)>(device_ + at);
  };
  put(device->tokens, at_.tokens, host.num_rows);
  put(device->positions, at_.positions, host.num_rows);
  put(device->row_slice, at_.row_slice, host.num_rows);
  if (host.states != nullptr) put(device->states, at_.states, host.num_rows);
  if (host.references != nullptr) {
    put(device->references, at_.references, host.num_rows);
    put(device->list_first, at_.list_first, host.num_rows);
    put(device->list_pages, at_.list_pages, host.num_list_pages);
  }
  put(device->slices, at_.slices, host.num_slices);
  put(device->logit_rows, at_.logit_rows, host.num_logit_rows);
  put(device->pages, at_.pages, host.num_pages);
  if (sources.rows != nullptr) {
    fill(sources.rows, at_.row_sources, host.num_rows);
    fill(sources.slices, at_.slice_sources, host.num_slices);
  }
  const std::size_t bytes = at_.pages + static_cast<std::size_t>(host.num_pages) * sizeof(std::int32_t);
  status = cuda_status(cudaMemcpyAsync(device_, bank.data, bytes, cudaMemcpyHostToDevice, stream),
                       "cudaMemcpyAsync of a step's metadata");
  return status.ok() ? cuda_status(cudaEventRecord(bank.sent, stream), "cudaEventRecord") : status;
}

SourceRows StepStaging::sources() const {
  return {reinterpret_cast<const sdk::RowSource*>(device_ + at_.row_sources),
          reinterpret_cast<const sdk::RowSource*>(device_ + at_.slice_sources)};
}

CopyStaging::~CopyStaging() {
  if (sent_ != nullptr) cudaEventDestroy(sent_);
  cudaFree(device_);
  cudaFreeHost(pinned_);
}

Status CopyStaging::bind() noexcept {
  cudaError_t error = cudaMallocHost(reinterpret_cast<void**>(&pinned_), kMost * sizeof *pinned_);
  if (error == cudaSuccess) error = cudaMalloc(reinterpret_cast<void**>(&device_), kMost * sizeof *device_);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&sent_, cudaEventDisableTiming);
  return cuda_status(error, "backend cuda: claiming the buffers of KV copies");
}

Status CopyStaging::send(const sdk::KvCopy* host, std::int32_t count, cudaStream_t stream, const sdk::KvCopy** device,
                         std::int32_t* part) noexcept {
  *device = device_;
  *part = std::min(count, kMost);
  const std::size_t bytes = static_cast<std::size_t>(*part) * sizeof *host;
  cudaError_t error = cudaEventSynchronize(sent_);
  if (error == cudaSuccess) {
    std::memcpy(pinned_, host, bytes);
    error = cudaMemcpyAsync(device_, pinned_, bytes, cudaMemcpyHostToDevice, stream);
  }
  if (error == cudaSuccess) error = cudaEventRecord(sent_, stream);
  return cuda_status(error, "backend cuda: uploading KV copies");
}

Downloader::~Downloader() {
  for (cudaEvent_t event : filled_)
    if (event != nullptr) cudaEventDestroy(event);
  cudaFreeHost(pinned_);
}

Status Downloader::bind() noexcept {
  cudaError_t error = cudaMallocHost(reinterpret_cast<void**>(&pinned_), 2 * kHalf);
  for (cudaEvent_t& event : filled_)
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  return cuda_status(error, "backend cuda: claiming the download buffer");
}

Status Downloader::fetch(void* host, const void* device, std::size_t bytes, cudaStream_t stream) noexcept {
  const std::size_t parts = (bytes + kHalf - 1) / kHalf;
  const auto part_bytes = [&](std::size_t part) { return std::min(kHalf, bytes - part * kHalf); };
  for (std::size_t part = 0; part < parts + 1; ++part) {
    if (part < parts) {
      const std::size_t half = part % 2;
      cudaError_t error = cudaMemcpyAsync(pinned_ + half * kHalf, static_cast<const char*>(device) + part * kHalf,
                                          part_bytes(part), cudaMemcpyDeviceToHost, stream);
      if (error == cudaSuccess) error = cudaEventRecord(filled_[half], stream);
      if (Status status = cuda_status(error, "cudaMemcpyAsync to the host"); !status.ok()) return status;
    }
    if (part == 0) continue;
    const std::size_t ready = part - 1;
    Status status = cuda_status(cudaEventSynchronize(filled_[ready % 2]), "waiting for the device");
    if (!status.ok()) return status;
    std::memcpy(static_cast<char*>(host) + ready * kHalf, pinned_ + ready % 2 * kHalf, part_bytes(ready));
  }
  return cuda_status(cudaStreamSynchronize(stream), "waiting for the device");
}

}  // namespace tessera_cuda
