#include "engine/probe.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace tessera {
namespace {

constexpr std::int32_t kMostRows = 3;
constexpr std::size_t kGuard = 1024;                // floats before and after the output
constexpr std::uint32_t kUntouched = 0xffa5'5a5au;  // a NaN no arithmetic makes

bool untouched(float value) { return std::bit_cast<std::uint32_t>(value) == kUntouched; }

/// The first layer's rows of page 0 must still be the zeros they were.
Status check_pool(sdk::Backend& backend, const char* name, const sdk::KvView& kv) {
  std::vector<float> page(static_cast<std::size_t>(kv.offset(1, 0, 0, 0)));
  for (const void* side : {kv.k, kv.v}) {
    TESSERA_TRY(backend.download(page.data(), side, page.size() * sizeof(float)));
    if (std::any_of(page.begin(), page.end(), [](float value) { return value != 0.0f; }))
      return fail(Code::invalid_argument,
                  "attention plugin {} wrote into the KV pool; wanted it to write its output only: mend the plugin",
                  name);
  }
  return {};
}

Status check_output(const char* name, const std::vector<float>& found) {
  const auto inside = [&](std::size_t i) { return i >= kGuard && i < found.size() - kGuard; };
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (untouched(found[i]) != inside(i)) continue;
    const auto offset = static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(kGuard);
    return fail(Code::invalid_argument,
                "attention plugin {} {} element {} of an output of {}; wanted every element of the output written, and "
                "nothing else: mend the plugin",
                name, inside(i) ? "did not write" : "wrote", offset, found.size() - 2 * kGuard);
  }
  return {};
}

}  // namespace

Status probe_attention(sdk::Backend& backend, sdk::Attention& attention, const char* name,
                       const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::KvView& kv,
                       void* workspace) {
  const std::int32_t count = std::min({kMostRows, limits.max_rows, limits.max_context});
  const std::int32_t width = shape.num_q_heads * shape.head_dim;
  const std::size_t elements = static_cast<std::size_t>(count) * static_cast<std::size_t>(width);
  std::vector<float> out(elements + 2 * kGuard, std::bit_cast<float>(kUntouched));
  void *q_data = nullptr, *out_data = nullptr;
  TESSERA_TRY(backend.allocate(elements * sizeof(float), &q_data));  // zeros: scores 0, values 0
  TESSERA_TRY(backend.allocate(out.size() * sizeof(float), &out_data));
  TESSERA_TRY(backend.upload(out_data, out.data(), out.size() * sizeof(float)));

  const std::int32_t zeros[kMostRows] = {}, positions[kMostRows] = {0, 1, 2};
  const sdk::Slice slice{0, count, 0, 0, 0, 1};
  const sdk::PackedRows rows{count, 1, zeros, positions, zeros, &slice, zeros, 1, zeros, 1};
  sdk::PackedRows device{};
  TESSERA_TRY(backend.begin_step(rows, &device));
  TESSERA_TRY(attention.plan(rows));
  const sdk::Matrix q{q_data, sdk::DType::f32, count, width, width};
  const sdk::Matrix target{static_cast<float*>(out_data) + kGuard, sdk::DType::f32, count, width, width};
  TESSERA_TRY(attention.run({q, target, kv, 0, device, workspace, nullptr, 0}, backend.context()));
  TESSERA_TRY(backend.download(out.data(), out_data, out.size() * sizeof(float)));
  TESSERA_TRY(check_output(name, out));
  return check_pool(backend, name, kv);
}

}  // namespace tessera
