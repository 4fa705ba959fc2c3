// A backend that computes nothing and remembers what it was asked for.
#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tessera/sdk/backend.h"

namespace tessera {

class RecordingBackend : public sdk::Backend {
 public:
  virtual ~RecordingBackend() = default;

  std::vector<std::string> calls;
  std::vector<std::vector<float>> uploads;

  sdk::Status bind(const sdk::StepLimits&) noexcept override { return noted("bind"); }
  sdk::DeviceContext context() noexcept override { return {sdk::Device::cpu, sdk::CpuIsa::scalar, nullptr, nullptr}; }
  sdk::Status memory(std::size_t* total, std::size_t* free) noexcept override {
    *total = *free = std::size_t{1} << 30;
    return noted("memory");
  }
  sdk::Status allocate(std::size_t bytes, void** device) noexcept override {
    *device = blocks_.emplace_back(std::make_unique<char[]>(bytes)).get();
    return noted("allocate");
  }
  sdk::Status upload(void* device, const void* host, std::size_t bytes) noexcept override {
    std::memcpy(device, host, bytes);
    const auto* floats = static_cast<const float*>(device);
    uploads.emplace_back(floats, floats + bytes / sizeof(float));
    return noted("upload");
  }
  sdk::Status download(void* host, const void* device, std::size_t bytes) noexcept override {
    std::memcpy(host, device, bytes);
    return noted("download");
  }
  sdk::Status prepare_linear(const sdk::HostMatrix* parts, std::size_t count, const float*,
                             const sdk::Linear** out) noexcept override {
    std::int32_t outputs = 0;
    for (std::size_t i = 0; i < count; ++i) outputs += parts[i].rows;
    linears_.push_back(std::make_unique<sdk::Linear>(sdk::Linear{outputs, parts[0].cols, parts[0].dtype, 0}));
    *out = linears_.back().get();
    return noted("prepare_linear");
  }
  sdk::Status begin_step(const sdk::PackedRows& host, sdk::PackedRows* device) noexcept override {
    *device = host;
    return noted("begin_step");
  }
  sdk::Status embed(const sdk::Linear&, const sdk::PackedRows&, const sdk::Matrix&) noexcept override {
    return noted("embed");
  }
  sdk::Status rms_norm(const sdk::NormArgs&) noexcept override { return noted("rms_norm"); }
  sdk::Status linear(const sdk::Linear&, const sdk::Matrix&, const sdk::Matrix&) noexcept override {
    return noted("linear");
  }
  sdk::Status rotary_append(const sdk::RotaryArgs&) noexcept override { return noted("rotary_append"); }
  sdk::Status swiglu(const sdk::Matrix&, const sdk::Matrix&) noexcept override { return noted("swiglu"); }
  sdk::Status gather(const sdk::Matrix&, const sdk::Matrix*, const sdk::PackedRows&,
                     const sdk::Matrix&) noexcept override {
    return noted("gather");
  }
  sdk::Status load_states(const sdk::Matrix&, const sdk::PackedRows&, const sdk::Matrix&) noexcept override {
    return noted("load_states");
  }
  sdk::Status store_states(const sdk::Matrix&, const sdk::PackedRows&, const sdk::Matrix&) noexcept override {
    return noted("store_states");
  }
  sdk::Status copy_kv(const sdk::KvView&, const sdk::KvCopy*, std::int32_t) noexcept override {
    return noted("copy_kv");
  }

 private:
  sdk::Status noted(const char* call) {
    calls.emplace_back(call);
    return {};
  }

  std::vector<std::unique_ptr<char[]>> blocks_;
  std::vector<std::unique_ptr<sdk::Linear>> linears_;
};

}  // namespace tessera
