#include "bench/attention_session.h"

#include "bench/attention_compare.h"

namespace tessera {
namespace {

bool serves(const sdk::Traits& traits, std::int32_t head_dim) {
  const auto dim = static_cast<std::uint32_t>(head_dim);
  return (traits.head_dim_multiple == 0 || dim % traits.head_dim_multiple == 0) &&
         (traits.head_dim_max == 0 || dim <= traits.head_dim_max);
}

/// Whether the variant takes part in this geometry; keeps its word about the head sizes it serves.
bool admit(AttentionFixture& fixture, const AttentionGeometry& geometry, PluginPtr<sdk::Attention>& attention,
           VariantReport& report) {
  const bool stated = serves(attention.descriptor().traits, geometry.head_dim);
  const Status bound = fixture.bind(*attention.get());
  const std::string name =
      fmt::format("{} query and {} KV heads of {}", geometry.q_heads, geometry.kv_heads, geometry.head_dim);
  if (bound.ok() && stated) return true;
  std::string problem;
  if (bound.ok()) problem = "is served, though the plugin's traits say otherwise";
  if (stated) problem = fmt::format("is refused, though the plugin's traits say it is served: {}", bound.message);
  if (!bound.ok() && bound.message[0] == '\0') problem = "is refused without a sentence";
  settle(report, report.refusals, name, problem);
  return false;
}

}  // namespace

Result<Session> open_session(const Config& config, Registry& registry, const AttentionGeometry& geometry,
                             const FixtureLimits& limits, AttentionReport& report) {
  Session session;
  auto fixture = AttentionFixture::open(config.backend, registry, geometry, limits);
  if (!fixture.ok()) return fixture.status();
  session.fixture = std::move(*fixture);
  const sdk::Device device = session.fixture->device();
  const PluginConfig oracle{.name = "attention_reference", .path = {}, .options = {}, .where = {"check", 0, 0}};
  auto reference = registry.create<sdk::Attention>(oracle, device);
  if (!reference.ok()) return reference.status();
  VariantReport own;
  if (admit(*session.fixture, geometry, *reference, own)) session.reference = std::move(*reference);
  if (!own.first_failure.empty()) report.failures.push_back("attention_reference: " + own.first_failure);
  for (VariantReport& variant : report.variants) {
    const PluginConfig chosen = with_variant(config.attention, variant.name, report.default_variant);
    auto made = registry.create<sdk::Attention>(chosen, device);
    if (!made.ok()) return made.status();
    if (admit(*session.fixture, geometry, *made, variant))
      session.candidates.push_back({&variant, std::move(*made), {}});
  }
  return session;
}

std::vector<Part> whole(const AttentionData& data) {
  std::vector<Part> parts;
  for (const SequenceData& sequence : data.sequences)
    parts.push_back({static_cast<std::int32_t>(parts.size()), sequence.start, sequence.length});
  return parts;
}

void settle(VariantReport& report, Tally& tally, std::string_view name, const std::string& problem) {
  ++tally.done;
  if (problem.empty()) return;
  ++tally.failed;
  if (report.first_failure.empty()) report.first_failure = fmt::format("{}: {}", name, problem);
}

std::string run_once(AttentionFixture& fixture, sdk::Attention& attention, VariantReport& report,
                     AttentionOutput& out) {
  if (const Status status = fixture.run(attention, out); !status.ok()) return status.message;
  report.stray_writes += out.stray;
  report.unwritten += out.unwritten;
  if (out.stray > 0) return fmt::format("{} elements outside the output's rows were written", out.stray);
  if (out.unwritten > 0) return fmt::format("{} elements of the output were not written", out.unwritten);
  return {};
}

void check_tensor(AttentionFixture& fixture, sdk::Attention& attention, VariantReport& report, std::string_view name,
                  std::span<const float> wanted, AttentionOutput& out) {
  std::string problem = run_once(fixture, attention, report, out);
  if (out.values.size() == wanted.size()) {
    const Difference difference = compare_outputs(out.values, wanted);
    report.floats += static_cast<std::int64_t>(wanted.size());
    report.differing_floats += difference.floats;
    report.differing_bits += difference.bits;
    if (difference.largest > report.largest_error) report.largest_error = difference.largest, report.worst_case = name;
    if (problem.empty() && report.exact && difference.bits != 0)
      problem = fmt::format("{} bits of {} floats differ from the reference, by {:.3g} at most", difference.bits,
                            difference.floats, difference.largest);
    if (problem.empty() && difference.outside != 0)
      problem = fmt::format("{} floats are off by more than {} + {} of the reference, {:.3g} at most",
                            difference.outside, kTolerance, kTolerance, difference.largest);
  }
  settle(report, report.tensors, name, problem);
}

Status check_poison(Session& session, const AttentionCase& one, const AttentionData& data) {
  TESSERA_TRY(session.fixture->place(data, one.seed, Unlisted::poison));
  TESSERA_TRY(session.fixture->pack(data, whole(data)));
  AttentionOutput out;
  for (Candidate& candidate : session.candidates) {
    VariantReport& report = *candidate.report;
    std::string problem = run_once(*session.fixture, *candidate.attention.get(), report, out);
    if (problem.empty() && candidate.kept.size() == out.values.size()) {
      const Difference moved = compare_outputs(out.values, candidate.kept);
      if (moved.bits != 0) problem = fmt::format("{} bits moved when NaN stood where no row may look", moved.bits);
    }
    settle(report, report.poison, one.name, problem);
  }
  return {};
}

}  // namespace tessera
