// create, bind, destroy: in order, repeated, refused.
#include <chrono>
#include <memory>

#include "kit/case.h"
#include "tessera/sdk/attention.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/protocol.h"
#include "tessera/sdk/sparse_decode.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kDestroyLimit{10};

/// Calls body.operator()<Interface>() for the plugin's kind.
template <class Body>
Finding with_interface(const Subject& subject, const Body& body) {
  auto opened = Registry::open(subject.file);
  if (!opened.ok()) return failed(opened.status());
  switch ((*opened)->kind) {
    case sdk::Kind::backend: return body.template operator()<sdk::Backend>();
    case sdk::Kind::attention: return body.template operator()<sdk::Attention>();
    case sdk::Kind::protocol: return body.template operator()<sdk::Protocol>();
    case sdk::Kind::sparse_decode: return body.template operator()<sdk::SparseDecode>();
  }
  return {Verdict::skipped, fmt::format("the kit does not know kind {}", sdk::kind_name((*opened)->kind))};
}

template <class Interface>
Result<PluginPtr<Interface>> create(const Subject& subject, const PluginConfig& config) {
  subject.doing("being created");
  return Registry({}).create<Interface>(config, sdk::Device::any);
}

template <class Interface>
void destroy(const Subject& subject, PluginPtr<Interface>& plugin) {
  subject.doing("being destroyed");
  plugin.reset();
}

Finding creates(const Subject& subject) {
  return with_interface(subject, [&]<class Interface>() -> Finding {
    auto made = create<Interface>(subject, subject.plugin);
    if (!made.ok()) return failed(made.status());
    destroy(subject, *made);
    return passed("{} options", subject.plugin.options.size());
  });
}

Finding refuses_unknown_option(const Subject& subject) {
  constexpr const char* kKey = "no_plugin_has_this_option";
  PluginConfig config = subject.plugin;
  config.options.push_back({kKey, "1", {"kit.yaml", 1, 1}});
  return with_interface(subject, [&]<class Interface>() -> Finding {
    auto made = create<Interface>(subject, config);
    if (made.ok()) return failed("took the option '{}', which it cannot know; read only the keys you use", kKey);
    if (std::string(made.status().message).find(kKey) == std::string::npos)
      return failed("was refused, but for another reason: {}", made.status().message);
    return passed("{}", made.status().message);
  });
}

Finding three_times(const Subject& subject) {
  return with_interface(subject, [&]<class Interface>() -> Finding {
    for (int round = 1; round <= 3; ++round) {
      auto made = create<Interface>(subject, subject.plugin);
      if (!made.ok()) return failed("creation {} failed: {}", round, made.status().message);
      destroy(subject, *made);
    }
    return passed("created and destroyed 3 times");
  });
}

Finding two_at_once(const Subject& subject) {
  return with_interface(subject, [&]<class Interface>() -> Finding {
    auto first = create<Interface>(subject, subject.plugin), second = create<Interface>(subject, subject.plugin);
    if (!first.ok()) return failed(first.status());
    if (!second.ok()) return failed("a second instance failed while the first lived: {}", second.status().message);
    if (first->get() == second->get()) return failed("two instances are one object; wanted nothing shared");
    destroy(subject, *first);
    destroy(subject, *second);
    return passed("the first destroyed first");
  });
}

Finding destroys_in_time(const Subject& subject) {
  return with_interface(subject, [&]<class Interface>() -> Finding {
    auto made = create<Interface>(subject, subject.plugin);
    if (!made.ok()) return failed(made.status());
    const auto start = std::chrono::steady_clock::now();
    destroy(subject, *made);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (took > kDestroyLimit)
      return failed("took {:.1f} s to destroy; wanted {} s at most", took.count(), kDestroyLimit.count());
    return passed("{:.0f} ms", took.count() * 1e3);
  });
}

constexpr KitCase kCases[] = {
    {"lifecycle-creates", "its defaults are enough to create it", "library-loads", creates},
    {"lifecycle-refuses-unknown-option", "a mistyped option in the YAML is not ignored", "lifecycle-creates",
     refuses_unknown_option},
    {"lifecycle-three-times", "nothing of an instance outlives it", "lifecycle-creates", three_times},
    {"lifecycle-two-at-once", "instances share nothing", "lifecycle-creates", two_at_once},
    {"lifecycle-destroys-in-time", "the server can stop", "lifecycle-creates", destroys_in_time},
};

}  // namespace

std::span<const KitCase> lifecycle_cases() { return kCases; }

}  // namespace tessera
