// The promise inside one operation: a row's bits do not know its neighbours, its place, its pages or its chunk.
#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "bench/attention_compare.h"
#include "bench/attention_session.h"

namespace tessera {
namespace {

/// Another way to compute the rows of a step, or some of them.
struct Arrangement {
  Tally VariantReport::*kind;
  std::string name;
  std::uint64_t page_seed;
  std::vector<std::vector<Part>> calls;
};

std::vector<Part> shuffled(std::vector<Part> parts, Random& random) {
  for (std::size_t i = parts.size(); i > 1; --i)
    std::swap(parts[i - 1], parts[random.below(static_cast<std::uint32_t>(i))]);
  return parts;
}

/// Every slice of more than one row cut in two somewhere; the later pieces run in a call of their own.
std::vector<std::vector<Part>> cut(const std::vector<Part>& parts, Random& random) {
  std::vector<std::vector<Part>> calls(2);
  for (const Part& part : parts) {
    const auto rest = static_cast<std::uint32_t>(part.length - 1);
    const std::int32_t first = rest == 0 ? 1 : 1 + static_cast<std::int32_t>(random.below(rest));
    calls[0].push_back({part.sequence, part.start, first});
    if (first < part.length) calls[1].push_back({part.sequence, part.start + first, part.length - first});
  }
  return calls;
}

std::vector<Arrangement> arrangements(const AttentionCase& one, const std::vector<Part>& parts) {
  Random random(one.seed, 11);
  std::vector<Arrangement> list;
  for (const Part& part : parts)
    list.push_back({&VariantReport::composition, fmt::format("slice {} alone", part.sequence), one.seed, {{part}}});
  list.push_back({&VariantReport::order, "reversed", one.seed, {{parts.rbegin(), parts.rend()}}});
  list.push_back({&VariantReport::order, "shuffled", one.seed, {shuffled(parts, random)}});
  for (const std::uint64_t other : {1, 2})
    list.push_back({&VariantReport::pages, fmt::format("other pages {}", other), one.seed + other, {parts}});
  for (const int round : {1, 2})
    list.push_back({&VariantReport::chunks, fmt::format("cut {}", round), one.seed, cut(parts, random)});
  return list;
}

/// Bits of `call`'s rows that are not those of the step as a whole.
std::int64_t moved_bits(const std::vector<Part>& call, const std::vector<Part>& step, std::size_t width,
                        std::span<const float> found, std::span<const float> wanted) {
  std::int64_t bits = 0;
  std::size_t at = 0;
  for (const Part& part : call) {
    const auto sequence = static_cast<std::size_t>(part.sequence);
    auto row = static_cast<std::size_t>(part.start - step[sequence].start);
    for (std::size_t s = 0; s < sequence; ++s) row += static_cast<std::size_t>(step[s].length);
    const std::size_t count = static_cast<std::size_t>(part.length) * width;
    bits += compare_outputs(found.subspan(at, count), wanted.subspan(row * width, count)).bits;
    at += count;
  }
  return bits;
}

/// All candidates through one arrangement, the outer loop over calls so that each is packed once.
Status check_arrangement(Session& session, const AttentionData& data, const AttentionCase& one,
                         const Arrangement& arrangement, const std::vector<Part>& step) {
  const auto width = static_cast<std::size_t>(data.geometry.q_width());
  std::vector<std::string> problems(session.candidates.size());
  AttentionOutput out;
  for (const std::vector<Part>& call : arrangement.calls) {
    if (call.empty()) continue;
    TESSERA_TRY(session.fixture->pack(data, call));
    for (std::size_t i = 0; i < problems.size(); ++i) {
      Candidate& candidate = session.candidates[i];
      std::string problem = run_once(*session.fixture, *candidate.attention.get(), *candidate.report, out);
      if (problem.empty() && !candidate.kept.empty()) {
        const std::int64_t bits = moved_bits(call, step, width, out.values, candidate.kept);
        if (bits != 0) problem = fmt::format("{} bits differ from the same rows in one packed call", bits);
      }
      if (problems[i].empty()) problems[i] = problem;
    }
  }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    VariantReport& report = *session.candidates[i].report;
    settle(report, report.*arrangement.kind, one.name + ", " + arrangement.name, problems[i]);
  }
  return {};
}

}  // namespace

Status check_invariance(Session& session, const std::vector<AttentionCase>& cases, Progress& progress,
                        std::span<Tally VariantReport::*const> kinds) {
  AttentionOutput out;
  for (const AttentionCase& one : cases) {
    const AttentionData data = make_data(one);
    const std::vector<Part> step = whole(data);
    std::uint64_t pages = one.seed;
    TESSERA_TRY(session.fixture->place(data, pages, Unlisted::finite));
    TESSERA_TRY(session.fixture->pack(data, step));
    for (Candidate& candidate : session.candidates) {
      const std::string problem = run_once(*session.fixture, *candidate.attention.get(), *candidate.report, out);
      candidate.kept = problem.empty() ? out.values : std::vector<float>();
      if (!problem.empty()) settle(*candidate.report, candidate.report->composition, one.name, problem);
    }
    for (const Arrangement& arrangement : arrangements(one, step)) {
      if (!kinds.empty() && std::find(kinds.begin(), kinds.end(), arrangement.kind) == kinds.end()) continue;
      if (arrangement.page_seed != pages)
        TESSERA_TRY(session.fixture->place(data, pages = arrangement.page_seed, Unlisted::finite));
      TESSERA_TRY(check_arrangement(session, data, one, arrangement, step));
    }
    progress.advance(static_cast<std::int64_t>(session.candidates.size()) * causal_pairs(one.slices) * 8);
  }
  return {};
}

}  // namespace tessera
