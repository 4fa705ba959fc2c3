// One fixture with the reference and every variant bound to it, and what a single run of one of them is judged by.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "bench/attention_check.h"
#include "bench/attention_fixture.h"

namespace tessera {

struct Candidate {
  VariantReport* report;
  PluginPtr<sdk::Attention> attention;
  std::vector<float> kept;  // an output that later runs are compared with
};

struct Session {
  std::unique_ptr<AttentionFixture> fixture;  // first: outlives what is bound to it
  PluginPtr<sdk::Attention> reference;        // empty when it refuses the geometry
  std::vector<Candidate> candidates;          // those that serve the geometry
};

/// The reports gain one entry a variant's refusal: right when the plugin's traits say so, else a failure.
Result<Session> open_session(const Config& config, Registry& registry, const AttentionGeometry& geometry,
                             const FixtureLimits& limits, AttentionReport& report);

/// One entry a variant of `config.attention`, the wanted ones or all, with what its instance says of itself.
Status list_variants(const Config& config, Registry& registry, const std::vector<std::string>& wanted,
                     AttentionReport& report);

/// Every sequence of the data as one slice.
std::vector<Part> whole(const AttentionData& data);

/// Counts into `tally`; a problem fails it, and the first one of a variant is kept with the name of its case.
void settle(VariantReport& report, Tally& tally, std::string_view name, const std::string& problem);

/// Runs and returns what is wrong with the run itself: an error, elements not written, writes outside the rows.
std::string run_once(AttentionFixture& fixture, sdk::Attention& attention, VariantReport& report, AttentionOutput& out);

/// One run against the reference's output, by the report's own standard.
void check_tensor(AttentionFixture& fixture, sdk::Attention& attention, VariantReport& report, std::string_view name,
                  std::span<const float> wanted, AttentionOutput& out);

/// Everything no row may look at becomes NaN; the outputs kept from the clean run must come again.
Status check_poison(Session& session, const AttentionCase& one, const AttentionData& data);

/// Small steps taken apart and put together again, each variant against itself. `kinds` are the tallies of interest:
/// some of composition, order, pages and chunks; none = all of them.
Status check_invariance(Session& session, const std::vector<AttentionCase>& cases, Progress& progress,
                        std::span<Tally VariantReport::*const> kinds = {});

}  // namespace tessera
