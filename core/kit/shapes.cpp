#include "kit/shapes.h"

#include "kit/trial.h"

namespace tessera {
namespace {

struct Impossible {
  const char* what;
  std::int32_t q_heads, kv_heads, head_dim;
  sdk::DType kv_dtype;
};

constexpr Impossible kShapes[] = {
    {"no KV heads", 4, 0, 64, sdk::DType::f32},        {"3 query heads on 2 KV heads", 3, 2, 64, sdk::DType::f32},
    {"-2 KV heads", 4, -2, 64, sdk::DType::f32},       {"heads of size 0", 4, 2, 0, sdk::DType::f32},
    {"heads of size -64", 4, 2, -64, sdk::DType::f32}, {"KV of type i32", 4, 2, 64, sdk::DType::i32},
};

Finding refuses(const Subject& subject, Registry& registry, const Impossible& one, const sdk::StepLimits& limits,
                const sdk::DeviceContext& device) {
  auto attention = registry.create<sdk::Attention>(subject.plugin, device.device);
  if (!attention.ok()) return failed(attention.status());
  subject.doing(fmt::format("being bound to {}", one.what));
  std::size_t bytes = 0;
  const Status status =
      (*attention)->bind({1, one.q_heads, one.kv_heads, one.head_dim, 0.125f, one.kv_dtype}, limits, device, bytes);
  if (status.ok()) return failed("accepted {}", one.what);
  if (status.message[0] == '\0') return failed("refused {} without a sentence", one.what);
  subject.doing(fmt::format("being destroyed after it refused {}", one.what));
  attention->reset();
  return passed("{} shapes, the last: {}", std::size(kShapes), status.message);
}

}  // namespace

Finding refuses_impossible_shapes(const Subject& subject) {
  Registry registry(Registry::search_path(subject.config));
  auto backend = registry.create<sdk::Backend>(subject.config.backend, sdk::Device::any);
  if (!backend.ok()) return {Verdict::skipped, backend.status().message};
  const sdk::StepLimits limits{8, 4, 4, 64, 20};
  if (const Status status = (*backend)->bind(limits); !status.ok()) return {Verdict::skipped, status.message};
  Finding last;
  for (const Impossible& one : kShapes) {
    last = refuses(subject, registry, one, limits, (*backend)->context());
    if (last.verdict != Verdict::passed) break;
  }
  return last;
}

}  // namespace tessera
