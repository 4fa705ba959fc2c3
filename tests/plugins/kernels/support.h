// Creates the compiled-in plugins with given options, for every instruction set of this CPU.
#pragma once
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "tessera/sdk/sdk.h"

extern const tessera::sdk::Descriptor backend_cpu_descriptor;
extern const tessera::sdk::Descriptor attention_reference_descriptor;

namespace kernel_test {

namespace sdk = tessera::sdk;

/// Options isa and threads; everything else has its default.
class Options final : public sdk::Host {
 public:
  explicit Options(std::string isa = "auto", int threads = 1)
      : isa_(std::move(isa)), threads_(threads), threads_text_(std::to_string(threads)) {}
  void log(sdk::LogLevel, const char*) noexcept override {}
  sdk::Status option_int(const char*, std::int64_t, std::int64_t, std::int64_t, std::int64_t* out) noexcept override {
    *out = threads_;
    return {};
  }
  sdk::Status option_real(const char*, double fallback, double, double, double* out) noexcept override {
    *out = fallback;
    return {};
  }
  sdk::Status option_bool(const char*, bool fallback, bool* out) noexcept override {
    *out = fallback;
    return {};
  }
  sdk::Status option_text(const char*, const char*, const char** out) noexcept override {
    *out = threads_text_.c_str();
    return {};
  }
  sdk::Status refuse(const char*, const char* wanted) noexcept override {
    return sdk::fail(sdk::Code::invalid_argument, wanted);
  }
  sdk::Status option_choice(const char* key, const char* fallback, const char* const* choices, std::size_t count,
                            std::size_t* out) noexcept override {
    const std::string value = std::strcmp(key, "isa") == 0 ? isa_ : fallback;
    for (std::size_t i = 0; i < count; ++i)
      if (value == choices[i]) {
        *out = i;
        return {};
      }
    return sdk::fail(sdk::Code::invalid_argument, "no such choice");
  }

 private:
  std::string isa_;
  int threads_;
  std::string threads_text_;
};

/// An instance of a plugin; null where the plugin refused, and why.
template <class Interface>
class Plugin {
 public:
  explicit Plugin(const sdk::Descriptor& descriptor, const std::string& isa = "auto", int threads = 1)
      : descriptor_(descriptor), options_(isa, threads) {
    status = descriptor.create(options_, &instance_);
  }
  ~Plugin() {
    if (instance_ != nullptr) descriptor_.destroy(instance_);
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  Interface* operator->() const { return static_cast<Interface*>(instance_); }
  sdk::Status status;

 private:
  const sdk::Descriptor& descriptor_;
  Options options_;
  void* instance_ = nullptr;
};

struct Setting {
  const char* isa;
  int threads;
};

/// Every instruction set this CPU has, with one thread and two.
inline std::vector<Setting> settings() {
  std::vector<Setting> out;
  for (const char* isa : {"scalar", "avx2", "avx512"})
    for (const int threads : {1, 2})
      if (Plugin<sdk::Backend>(backend_cpu_descriptor, isa, threads).status.ok()) out.push_back({isa, threads});
  return out;
}

inline std::vector<float> random_floats(tessera::Random& random, std::size_t count) {
  std::vector<float> out(count);
  for (float& value : out) value = random.real(-1.0f, 1.0f);
  return out;
}

inline bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline sdk::Matrix view(std::vector<float>& data, std::int64_t rows) {
  const auto cols = static_cast<std::int64_t>(data.size()) / rows;
  return {data.data(), sdk::DType::f32, static_cast<std::int32_t>(rows), static_cast<std::int32_t>(cols), cols};
}

}  // namespace kernel_test
