#include "bench/attention_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

#include "base/nearest.h"
#include "base/sha256.h"
#include "bench/attention_compare.h"
#include "bench/attention_corpus.h"
#include "bench/attention_session.h"

namespace tessera {
namespace {

std::string short_hash(std::span<const float> values) {
  return to_hex(Sha256().add(std::as_bytes(values)).finish()).substr(0, 16);
}

/// The first, the middle and the last row of the reference's output against f64.
void check_oracle(const AttentionData& data, std::string_view name, std::span<const float> found,
                  AttentionReport& report) {
  const auto width = static_cast<std::size_t>(data.geometry.q_width());
  const std::size_t rows = found.size() / width;
  std::size_t before = 0, previous = rows;
  for (const std::size_t wanted : {std::size_t{0}, rows / 2, rows - 1}) {
    if (wanted == previous) continue;
    previous = wanted;
    std::size_t sequence = 0;
    for (before = 0; before + static_cast<std::size_t>(data.sequences[sequence].length) <= wanted; ++sequence)
      before += static_cast<std::size_t>(data.sequences[sequence].length);
    const auto exact = attention_oracle(data, sequence, static_cast<std::int32_t>(wanted - before));
    const Difference difference = compare_with_oracle(found.subspan(wanted * width, width), exact);
    ++report.oracle.done;
    report.oracle_largest = std::max(report.oracle_largest, difference.largest);
    if (difference.outside == 0) continue;
    ++report.oracle.failed;
    report.failures.push_back(
        fmt::format("{}: row {} of the reference is off by {:.3g} from f64", name, wanted, difference.largest));
  }
}

Status check_case(Session& session, const AttentionCase& one, AttentionReport& report, Progress& progress) {
  const AttentionData data = make_data(one);
  AttentionFixture& fixture = *session.fixture;
  TESSERA_TRY(fixture.place(data, one.seed, Unlisted::finite));
  TESSERA_TRY(fixture.pack(data, whole(data)));
  AttentionOutput wanted, found;
  VariantReport reference;
  if (const std::string problem = run_once(fixture, *session.reference.get(), reference, wanted); !problem.empty())
    report.failures.push_back(fmt::format("{}: attention_reference: {}", one.name, problem));
  if (!std::all_of(wanted.values.begin(), wanted.values.end(), [](float value) { return std::isfinite(value); }))
    report.failures.push_back(fmt::format("{}: the reference gave a number that is not finite", one.name));
  check_oracle(data, one.name, wanted.values, report);
  report.hashes[one.name] = short_hash(wanted.values);
  ++report.cases;
  for (Candidate& candidate : session.candidates) {
    check_tensor(fixture, *candidate.attention.get(), *candidate.report, one.name, wanted.values, found);
    if (one.poison) candidate.kept = found.values;
    progress.advance(causal_pairs(one.slices));
  }
  return one.poison ? check_poison(session, one, data) : Status{};
}

/// The check must be able to fail: two keys change places with their values, which leaves the mathematics of a row
/// that sees both and changes only the order of its sums. Judged as an exact variant, that has to be caught.
Status check_control(Session& session, AttentionReport& report) {
  const AttentionCase one{"control", {}, {{511, 1}}, Profile::normal, report.seed, false};
  AttentionData data = make_data(one);
  AttentionFixture& fixture = *session.fixture;
  AttentionOutput wanted, found;
  TESSERA_TRY(fixture.place(data, one.seed, Unlisted::finite));
  TESSERA_TRY(fixture.pack(data, whole(data)));
  TESSERA_TRY(fixture.run(*session.reference.get(), wanted));
  const auto width = static_cast<std::ptrdiff_t>(data.geometry.kv_width());
  for (std::vector<float>* side : {&data.sequences[0].k, &data.sequences[0].v})
    std::swap_ranges(side->begin() + 3 * width, side->begin() + 4 * width, side->begin() + 200 * width);
  TESSERA_TRY(fixture.place(data, one.seed, Unlisted::finite));
  VariantReport changed;
  changed.exact = true;
  check_tensor(fixture, *session.reference.get(), changed, one.name, wanted.values, found);
  report.control_bits = changed.differing_bits;
  if (changed.tensors.failed != 1)
    report.failures.push_back("the order-changing control was not caught: this check cannot fail");
  if (compare_outputs(found.values, wanted.values).outside != 0)
    report.failures.push_back("the order-changing control changed more than an order");
  return {};
}

/// Cases of equal geometry share a session.
Status check_cases(const Config& config, Registry& registry, const std::vector<AttentionCase>& cases,
                   AttentionReport& report, Progress& progress) {
  for (auto begin = cases.begin(); begin != cases.end();) {
    const auto end = std::find_if(begin, cases.end(), [&](const auto& one) { return one.geometry != begin->geometry; });
    const std::vector<AttentionCase> group(begin, end);
    auto session = open_session(config, registry, begin->geometry, limits_for(group), report);
    if (!session.ok()) return session.status();
    if (session->reference.get() != nullptr)
      for (const AttentionCase& one : group) TESSERA_TRY(check_case(*session, one, report, progress));
    begin = end;
  }
  return {};
}

Status check_default_geometry(const Config& config, Registry& registry, const std::vector<AttentionCase>& cases,
                              const std::vector<AttentionCase>& small, AttentionReport& report, Progress& progress) {
  auto all = cases;
  all.insert(all.end(), small.begin(), small.end());
  auto session = open_session(config, registry, {}, limits_for(all), report);
  if (!session.ok()) return session.status();
  if (session->reference.get() == nullptr) return fail(Code::internal, "attention_reference refused heads of 64");
  TESSERA_TRY(check_control(*session, report));
  for (const AttentionCase& one : cases) TESSERA_TRY(check_case(*session, one, report, progress));
  return check_invariance(*session, small, progress);
}

Result<sdk::Device> device_of(const Config& config, Registry& registry) {
  auto backend = registry.create<sdk::Backend>(config.backend, sdk::Device::any);
  if (!backend.ok()) return backend.status();
  return (*backend)->context().device;
}

}  // namespace

bool VariantReport::ok() const {
  const bool batch = composition.failed + order.failed + pages.failed == 0 || !batch_invariant;
  const bool chunk = chunks.failed == 0 || !chunk_invariant;
  return tensors.failed + poison.failed + refusals.failed + stray_writes + unwritten == 0 && batch && chunk &&
         tensors.done > 0;
}

bool AttentionReport::ok() const {
  return failures.empty() && !variants.empty() && cases > 0 &&
         std::all_of(variants.begin(), variants.end(), [](const VariantReport& variant) { return variant.ok(); });
}

std::int64_t AttentionReport::total(Tally VariantReport::*kind) const {
  std::int64_t sum = 0;
  for (const VariantReport& variant : variants) sum += (variant.*kind).done;
  return sum;
}

PluginConfig with_variant(const PluginConfig& attention, const std::string& variant,
                          const std::string& default_variant) {
  PluginConfig changed = attention;
  std::erase_if(changed.options, [](const PluginOption& option) { return option.key == "variant"; });
  if (variant != default_variant) changed.options.push_back({"variant", variant, {"check", 0, 0}});
  return changed;
}

Result<std::vector<std::string>> attention_variants(const Config& config, Registry& registry) {
  auto device = device_of(config, registry);
  if (!device.ok()) return device.status();
  auto made = registry.create<sdk::Attention>(with_variant(config.attention, "", ""), *device);
  if (!made.ok()) return made.status();
  std::istringstream words((*made)->variants());
  std::vector<std::string> names;
  for (std::string name; words >> name;) names.push_back(name);
  if (names.empty()) return fail(Code::internal, "{}: names no variants", config.attention.name);
  return names;
}

Status list_variants(const Config& config, Registry& registry, const std::vector<std::string>& wanted,
                     AttentionReport& report) {
  auto device = device_of(config, registry);
  if (!device.ok()) return device.status();
  auto known = attention_variants(config, registry);
  if (!known.ok()) return known.status();
  report.default_variant = known->front();
  for (const std::string& name : wanted.empty() ? *known : wanted) {
    if (std::find(known->begin(), known->end(), name) == known->end())
      return fail(Code::invalid_argument, "{} has no variant '{}'; it has {}", config.attention.name, name,
                  fmt::join(*known, ", "));
    auto made = registry.create<sdk::Attention>(with_variant(config.attention, name, known->front()), *device);
    if (!made.ok()) return made.status();
    const std::uint64_t claims = made->descriptor().traits.capabilities;
    VariantReport variant;
    variant.name = name;
    variant.exact = (claims & sdk::kPortableBits) != 0 && (*made)->exact();
    variant.batch_invariant = (claims & sdk::kBatchInvariant) != 0;
    variant.chunk_invariant = (claims & sdk::kChunkInvariant) != 0;
    report.variants.push_back(std::move(variant));
  }
  return {};
}

Result<AttentionReport> check_attention(const Config& config, Registry& registry,
                                        const AttentionCheckOptions& options) {
  AttentionReport report;
  report.plugin = config.attention.name;
  report.device = config.backend.name;
  report.seed = options.seed;
  report.fuzz = options.fuzz;
  TESSERA_TRY(list_variants(config, registry, options.variants, report));
  auto cases = fixed_cases(options.seed);
  for (std::int32_t i = 0; i < options.fuzz; ++i) cases.push_back(fuzz_case(options.seed, i));
  auto shapes = geometry_cases(options.seed), far = long_cases(options.seed), small = invariance_cases(options.seed);
  for (auto* list : {&cases, &shapes, &far, &small})
    std::erase_if(*list, [&](const AttentionCase& one) {
      return options.most_pairs > 0 && causal_pairs(one.slices) > options.most_pairs;
    });
  std::int64_t pairs = 0;
  const auto add = [&](const std::vector<AttentionCase>& list, std::int64_t times) {
    for (const AttentionCase& one : list) pairs += times * causal_pairs(one.slices);
  };
  add(cases, 1), add(shapes, 1), add(far, 1), add(small, 8);
  Progress progress("checking attention", pairs * static_cast<std::int64_t>(report.variants.size()));
  TESSERA_TRY(check_default_geometry(config, registry, cases, small, report, progress));
  TESSERA_TRY(check_cases(config, registry, shapes, report, progress));
  TESSERA_TRY(check_cases(config, registry, far, report, progress));
  progress.finish();
  return report;
}

}  // namespace tessera
