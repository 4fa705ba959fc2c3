#include "support.h"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace cuda_test {

using tessera::PluginConfig;
using tessera::Registry;

namespace {

Registry& registry() {
  static Registry plugins({TESSERA_BINARY_DIR "/plugins"});
  return plugins;
}

tessera::Result<tessera::PluginPtr<sdk::Backend>> create_backend(const char* name) {
  const PluginConfig config{.name = name, .path = {}, .options = {}, .where = {}};
  return registry().create<sdk::Backend>(config, sdk::Device::any);
}

}  // namespace

Side::Side(const char* name) {
  auto backend = create_backend(name);
  REQUIRE_MESSAGE(backend.ok(), backend.status().message);
  backend_ = std::move(*backend);
  const sdk::Status bound = backend_->bind(kLimits);
  REQUIRE_MESSAGE(bound.ok(), bound.message);
}

tessera::PluginPtr<sdk::Attention> Side::unbound(const char* name,
                                                 const std::vector<tessera::PluginOption>& options) const {
  const PluginConfig config{.name = name, .path = {}, .options = options, .where = {}};
  auto attention = registry().create<sdk::Attention>(config, backend_->context().device);
  REQUIRE_MESSAGE(attention.ok(), attention.status().message);
  return std::move(*attention);
}

tessera::PluginPtr<sdk::SparseDecode> Side::sparse(const char* name,
                                                   const std::vector<tessera::PluginOption>& options) const {
  const PluginConfig config{.name = name, .path = {}, .options = options, .where = {}};
  auto sparse = registry().create<sdk::SparseDecode>(config, backend_->context().device);
  REQUIRE_MESSAGE(sparse.ok(), sparse.status().message);
  return std::move(*sparse);
}

tessera::PluginPtr<sdk::Attention> Side::attention(const char* name, const sdk::AttentionShape& shape, void** workspace,
                                                   const std::vector<tessera::PluginOption>& options) const {
  auto attention = unbound(name, options);
  std::size_t bytes = 0;
  const sdk::Status bound = attention->bind(shape, kLimits, backend_->context(), bytes);
  REQUIRE_MESSAGE(bound.ok(), bound.message);
  REQUIRE(backend_->allocate(bytes, workspace).ok());
  return attention;
}

float* Side::put(const std::vector<float>& values) const {
  void* device = nullptr;
  const std::size_t bytes = values.size() * sizeof(float);
  REQUIRE(backend_->allocate(bytes, &device).ok());
  REQUIRE(backend_->upload(device, values.data(), bytes).ok());
  return static_cast<float*>(device);
}

float* Side::poisoned(std::size_t count) const { return put(std::vector<float>(count, std::nanf(""))); }

std::vector<float> Side::get(const void* device, std::size_t count) const {
  std::vector<float> values(count);
  const sdk::Status status = backend_->download(values.data(), device, count * sizeof(float));
  REQUIRE_MESSAGE(status.ok(), status.message);
  return values;
}

bool gpu_is_there() {
  static const bool there = [] {
    auto backend = create_backend("cuda");
    if (backend.ok()) return true;
    std::printf("skipped: %s\n", backend.status().message);
    // Only a missing GPU is a reason to skip.
    CHECK_MESSAGE(backend.status().code == sdk::Code::unsupported, backend.status().message);
    return false;
  }();
  return there;
}

std::vector<float> random_floats(tessera::Random& random, std::size_t count, float scale) {
  std::vector<float> out(count);
  for (float& value : out) value = random.real(-1.0f, 1.0f) * scale;
  return out;
}

std::size_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += std::memcmp(&a[i], &b[i], sizeof(float)) != 0 ? 1 : 0;
  return count;
}

void Step::add(std::int32_t first, std::int32_t rows) {
  const auto num_pages = (first + rows - 1) / sdk::kPageSize + 1;
  const auto slice = static_cast<std::int32_t>(slices.size());
  slices.push_back(
      {static_cast<std::int32_t>(tokens.size()), rows, first, 0, static_cast<std::int32_t>(pages.size()), num_pages});
  // Backwards, so that neighbouring positions are not neighbours in memory.
  for (std::int32_t i = 0; i < num_pages; ++i) pages.push_back(pool_pages + num_pages - 1 - i);
  pool_pages += num_pages;
  for (std::int32_t i = 0; i < rows; ++i) {
    logit_rows.push_back(static_cast<std::int32_t>(tokens.size()));
    tokens.push_back((slice * 37 + i * 11) % 97);
    positions.push_back(first + i);
    row_slice.push_back(slice);
  }
}

sdk::PackedRows Step::view() const {
  return {static_cast<std::int32_t>(tokens.size()),
          static_cast<std::int32_t>(slices.size()),
          tokens.data(),
          positions.data(),
          row_slice.data(),
          slices.data(),
          pages.data(),
          static_cast<std::int32_t>(pages.size()),
          logit_rows.data(),
          static_cast<std::int32_t>(logit_rows.size())};
}

}  // namespace cuda_test
