// What an attention plugin computes, and what it must leave alone.
#include <algorithm>
#include <bit>
#include <cstring>

#include "bench/attention_compare.h"
#include "bench/attention_corpus.h"
#include "kit/shapes.h"
#include "kit/trial.h"

namespace tessera {
namespace {

constexpr std::int64_t kShort = 30'000;  // causal pairs of the longest case, histories to 4096 excepted
constexpr std::uint32_t kUntouched = 0x7fc3c3c3;

/// A few rows of every sort: a prompt, a continued one, a decode row, rows about the edge of a segment.
AttentionCase small_case(const Subject& subject) {
  return {"small", {}, {{0, 17}, {15, 3}, {40, 1}, {254, 4}}, Profile::normal, subject.seed, true};
}

/// Runs `body` on the small case, laid out and packed.
Finding on_small_case(const Subject& subject, const std::function<Finding(Trial&)>& body) {
  auto geometry = served_geometry(subject);
  if (!geometry.ok()) return {Verdict::skipped, geometry.status().message};
  const auto cases = fitted({small_case(subject)}, *geometry);
  return with_trial(subject, cases, [&](Trial& trial) -> Finding {
    const AttentionData data = make_data(cases[0]);
    AttentionFixture& fixture = *trial.session.fixture;
    if (const Status status = fixture.place(data, subject.seed, Unlisted::finite); !status.ok()) return failed(status);
    if (const Status status = fixture.pack(data, whole(data)); !status.ok()) return failed(status);
    return body(trial);
  });
}

Finding writes_its_output(const Subject& subject) {
  return on_small_case(subject, [](Trial& trial) -> Finding {
    AttentionFixture& fixture = *trial.session.fixture;
    AttentionOutput out;
    for (Candidate& candidate : trial.session.candidates) {
      auto before = fixture.input_hashes(*candidate.attention.get());
      const std::string problem = run_once(fixture, *candidate.attention.get(), *candidate.report, out);
      auto after = fixture.input_hashes(*candidate.attention.get());
      if (!before.ok() || !after.ok()) return failed(before.ok() ? after.status() : before.status());
      if (!problem.empty()) return failed("variant {}: {}", candidate.report->name, problem);
      for (const auto& [name, hash] : *before)
        if (hash != after->at(name)) return failed("variant {}: it changed {}", candidate.report->name, name);
    }
    return passed("{} elements, and nothing else", out.values.size());
  });
}

Finding is_deterministic(const Subject& subject) {
  return on_small_case(subject, [](Trial& trial) -> Finding {
    constexpr int kRounds = 6;
    for (Candidate& candidate : trial.session.candidates) {
      AttentionOutput first, again;
      for (int round = 0; round < kRounds; ++round) {
        AttentionOutput& out = round == 0 ? first : again;
        const std::string problem =
            run_once(*trial.session.fixture, *candidate.attention.get(), *candidate.report, out);
        if (!problem.empty()) return failed("variant {}: {}", candidate.report->name, problem);
        if (round == 0) continue;
        if (const Difference moved = compare_outputs(again.values, first.values); moved.bits != 0)
          return failed("variant {}: {} bits differ when the same call is made again", candidate.report->name,
                        moved.bits);
      }
    }
    return passed("{} equal calls", kRounds);
  });
}

/// An instance bound to another model, and run, must not be felt.
Finding instances_are_apart(const Subject& subject) {
  return on_small_case(subject, [&](Trial& trial) -> Finding {
    Candidate& candidate = trial.session.candidates.front();
    AttentionOutput before, after;
    if (const Status status = trial.session.fixture->run(*candidate.attention.get(), before); !status.ok())
      return failed(status);
    auto geometry = *served_geometry(subject);
    geometry.q_heads = geometry.kv_heads = 1;
    const auto others = fitted({{"other", {}, {{0, 5}}, Profile::normal, subject.seed, false}}, geometry);
    const Finding other = with_trial(subject, others, [&](Trial& second) -> Finding {
      const AttentionData data = make_data(others[0]);
      AttentionOutput out;
      if (const Status status = second.session.fixture->place(data, 1, Unlisted::finite); !status.ok())
        return failed(status);
      if (const Status status = second.session.fixture->pack(data, whole(data)); !status.ok()) return failed(status);
      if (const Status status = second.session.fixture->run(*second.session.candidates[0].attention.get(), out);
          !status.ok())
        return failed(status);
      if (const Status status = trial.session.fixture->run(*candidate.attention.get(), after); !status.ok())
        return failed(status);
      return {};
    });
    if (other.verdict != Verdict::passed) return other;
    const Difference moved = compare_outputs(after.values, before.values);
    if (moved.bits != 0) return failed("{} bits moved when a second instance served another model", moved.bits);
    return passed("one head beside {}", served_geometry(subject)->q_heads);
  });
}

std::vector<AttentionCase> short_corpus(const Subject& subject, const AttentionGeometry& geometry) {
  auto cases = fixed_cases(subject.seed);
  std::erase_if(cases, [](const AttentionCase& one) { return causal_pairs(one.slices) > kShort; });
  cases.push_back({"end-of-4096", {}, {{4'093, 3}}, Profile::normal, subject.seed, false});
  for (std::int32_t i = 0; i < subject.fuzz; ++i) cases.push_back(fuzz_case(subject.seed, i));
  return fitted(std::move(cases), geometry);
}

/// The reference and every variant over one case; keeps the variants' outputs.
Status compare_case(Trial& trial, const AttentionCase& one) {
  const AttentionData data = make_data(one);
  AttentionFixture& fixture = *trial.session.fixture;
  TESSERA_TRY(fixture.place(data, one.seed, Unlisted::finite));
  TESSERA_TRY(fixture.pack(data, whole(data)));
  AttentionOutput wanted, found;
  TESSERA_TRY(fixture.run(*trial.session.reference.get(), wanted));
  for (Candidate& candidate : trial.session.candidates) {
    check_tensor(fixture, *candidate.attention.get(), *candidate.report, one.name, wanted.values, found);
    candidate.kept = found.values;
  }
  return {};
}

Finding matches_reference(const Subject& subject) {
  auto geometry = served_geometry(subject);
  if (!geometry.ok()) return {Verdict::skipped, geometry.status().message};
  const auto cases = short_corpus(subject, *geometry);
  return with_trial(subject, cases, [&](Trial& trial) -> Finding {
    for (const AttentionCase& one : cases)
      if (const Status status = compare_case(trial, one); !status.ok()) return failed(status);
    return trial.finding({&VariantReport::tensors});
  });
}

/// Head sizes and head counts: those its traits name are served and right, the others refused with a sentence.
Finding serves_what_it_says(const Subject& subject) {
  std::int64_t served = 0, refused = 0;
  for (const AttentionCase& one : geometry_cases(subject.seed)) {
    if (one.name.find("ragged") == std::string::npos) continue;
    const Finding finding = with_trial(subject, {one}, [&](Trial& trial) -> Finding {
      if (trial.session.candidates.empty()) {
        ++refused;
        return {};
      }
      ++served;
      if (const Status status = compare_case(trial, one); !status.ok()) return failed(status);
      return trial.finding({&VariantReport::tensors});
    });
    if (finding.verdict == Verdict::failed) return failed("{}: {}", one.name, finding.reason);
    if (finding.verdict != Verdict::passed) return finding;
  }
  return passed("{} shapes served, {} refused as stated", served, refused);
}

Finding reads_only_its_past(const Subject& subject) {
  auto geometry = served_geometry(subject);
  if (!geometry.ok()) return {Verdict::skipped, geometry.status().message};
  auto cases = fitted(fixed_cases(subject.seed), *geometry);
  std::erase_if(cases, [](const AttentionCase& one) { return !one.poison || causal_pairs(one.slices) > 8'000; });
  return with_trial(subject, cases, [&](Trial& trial) -> Finding {
    for (const AttentionCase& one : cases) {
      if (const Status status = compare_case(trial, one); !status.ok()) return failed(status);
      for (VariantReport& variant : trial.report.variants) variant.first_failure.clear();  // that is another case
      if (const Status status = check_poison(trial.session, one, make_data(one)); !status.ok()) return failed(status);
      const Finding sofar = trial.finding({&VariantReport::poison});
      if (sofar.verdict != Verdict::passed) return sofar;
    }
    return trial.finding({&VariantReport::poison});
  });
}

Finding invariance(const Subject& subject, std::initializer_list<Tally VariantReport::*> kinds) {
  auto geometry = served_geometry(subject);
  if (!geometry.ok()) return {Verdict::skipped, geometry.status().message};
  auto cases = fitted(invariance_cases(subject.seed), *geometry);
  cases.resize(4);
  return with_trial(subject, cases, [&](Trial& trial) -> Finding {
    Progress silent("", 0);
    const Status status = check_invariance(trial.session, cases, silent, std::vector(kinds));
    return status.ok() ? trial.finding(kinds) : failed(status);
  });
}

Finding not_promised(const char* claim) {
  return {Verdict::not_claimed,
          fmt::format("no {}: with it, answers may change with load, and the engine's promise does "
                      "not hold",
                      claim)};
}

Finding is_batch_invariant(const Subject& subject) {
  if ((claims(subject) & sdk::kBatchInvariant) == 0) return not_promised("batch_invariant");
  return invariance(subject, {&VariantReport::composition, &VariantReport::order});
}

Finding is_chunk_invariant(const Subject& subject) {
  if ((claims(subject) & sdk::kChunkInvariant) == 0) return not_promised("chunk_invariant");
  return invariance(subject, {&VariantReport::chunks});
}

Finding ignores_page_ids(const Subject& subject) { return invariance(subject, {&VariantReport::pages}); }

/// Positions a row sees against the reference's scores; those it does not see must be as they were.
std::string compare_scores(const AttentionFixture& fixture, std::int32_t heads, bool exact,
                           std::span<const float> found, std::span<const float> wanted) {
  const auto context = static_cast<std::size_t>(fixture.limits().max_context);
  for (std::size_t line = 0; line * context < found.size(); ++line) {
    const std::int32_t row = static_cast<std::int32_t>(line) / heads, position = fixture.rows().positions[row];
    const auto seen = static_cast<std::size_t>(position) + 1;
    const Difference difference =
        compare_outputs(found.subspan(line * context, seen), wanted.subspan(line * context, seen));
    if (exact ? difference.bits != 0 : difference.outside != 0)
      return fmt::format("scores of position {} differ from the reference's, by {:.3g} at most", position,
                         difference.largest);
    for (const float value : found.subspan(line * context + seen, context - seen))
      if (std::bit_cast<std::uint32_t>(value) != kUntouched)
        return fmt::format("wrote scores past position {}, which the row cannot see", position);
  }
  return {};
}

Finding emits_scores(const Subject& subject) {
  if ((claims(subject) & sdk::kEmitsScores) == 0) return {Verdict::not_claimed, "no emits_scores"};
  return on_small_case(subject, [&](Trial& trial) -> Finding {
    AttentionFixture& fixture = *trial.session.fixture;
    const float untouched = std::bit_cast<float>(kUntouched);
    std::vector<float> wanted, found;
    Status status = fixture.run_scores(*trial.session.reference.get(), wanted, untouched);
    for (Candidate& candidate : trial.session.candidates) {
      if (status.ok()) status = fixture.run_scores(*candidate.attention.get(), found, untouched);
      if (!status.ok()) return failed(status);
      const std::string problem =
          compare_scores(fixture, served_geometry(subject)->q_heads, candidate.report->exact, found, wanted);
      if (!problem.empty()) return failed("variant {}: {}", candidate.report->name, problem);
    }
    return passed("{} scores", found.size());
  });
}

constexpr KitCase kCases[] = {
    {"attention-refuses-impossible-shapes", "a model it cannot serve is refused with a sentence", "lifecycle-creates",
     refuses_impossible_shapes},
    {"attention-writes-its-output", "every element of the output is written, and nothing else", "lifecycle-creates",
     writes_its_output},
    {"attention-is-deterministic", "the same call gives the same bits", "lifecycle-creates", is_deterministic},
    {"attention-matches-reference", "the reference's bits if it owes them, else values within 2e-5 + 2e-5 |reference|",
     "lifecycle-creates", matches_reference},
    {"attention-serves-what-it-says", "head sizes of its traits are served and right, others refused",
     "lifecycle-creates", serves_what_it_says},
    {"attention-reads-only-its-past", "NaN past the causal end, in other layers and pages moves no bit",
     "lifecycle-creates", reads_only_its_past},
    {"attention-ignores-page-ids", "a history on other pages gives the same bits", "lifecycle-creates",
     ignores_page_ids},
    {"attention-is-batch-invariant", "a row alone, and among others in any order: the same bits", "lifecycle-creates",
     is_batch_invariant},
    {"attention-is-chunk-invariant", "a prompt cut anywhere: the same bits", "lifecycle-creates", is_chunk_invariant},
    {"attention-emits-scores", "the scores it can write are the reference's", "lifecycle-creates", emits_scores},
    {"attention-instances-are-apart", "two models in one process do not feel each other", "lifecycle-creates",
     instances_are_apart},
};

}  // namespace

std::span<const KitCase> attention_cases() { return kCases; }

}  // namespace tessera
