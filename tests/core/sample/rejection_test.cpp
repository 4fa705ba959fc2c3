#include "sample/rejection.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/random.h"

namespace tessera {
namespace {

using Logits = std::vector<float>;
constexpr double kLast = 1.0 - 0x1p-53;  // the largest uniform

SampleScratch& scratch() {
  static SampleScratch shared;  // on purpose: an answer must not depend on what the scratch held
  return shared;
}

Distribution distribution_of(const Logits& logits, const SamplingParams& params) {
  Distribution result;
  const Status status = distribute(logits, {params, 0, 0, {}, {}}, scratch(), result);
  REQUIRE_MESSAGE(status.ok(), std::string(status.message));
  return result;
}

double share_of(const Distribution& distribution, std::int32_t token) {
  for (std::size_t i = 0; i < distribution.tokens.size(); ++i)
    if (distribution.tokens[i] == token) return distribution.share(i) / distribution.sums.back();
  return 0;
}

Draft draft_at(const Logits& logits, const SamplePoint& point) {
  Draft draft{};
  REQUIRE(sample_draft(logits, point, scratch(), draft).ok());
  return draft;
}

Sampled verified(const Logits& logits, const SamplePoint& point, const Draft& draft, std::int32_t top = -1) {
  auto result = sample_with_draft(logits, point, draft, top, scratch());
  REQUIRE_MESSAGE(result.ok(), std::string(result.status().message));
  return *result;
}

Logits random_logits(Random& random, std::size_t count) {
  Logits logits(count);
  for (float& logit : logits) logit = random.real(-9.0f, 3.0f);
  return logits;
}

/// Tokens and accepted candidates of 12,000 seeds against `draft_of(point)`, compared with the target's distribution.
template <class DraftOf>
void recovers(const Logits& target, SamplingParams params, double accepted, DraftOf draft_of) {
  constexpr int kSeeds = 12000;
  std::vector<int> counts(target.size());
  int kept = 0;
  const Distribution p = distribution_of(target, params);
  for (int seed = 0; seed < kSeeds; ++seed) {
    params.seed = static_cast<std::uint64_t>(seed);
    const SamplePoint point{params, 1, 17, {}, {}};
    const Draft draft = draft_of(point);
    const std::int32_t token = verified(target, point, draft).token;
    ++counts[static_cast<std::size_t>(token)];
    kept += token == draft.token;
  }
  for (std::size_t token = 0; token < target.size(); ++token) {
    CAPTURE(token);
    const double wanted = share_of(p, static_cast<std::int32_t>(token));
    CHECK(std::abs(counts[token] / double{kSeeds} - wanted) < 0.016);
    if (wanted == 0) CHECK(counts[token] == 0);
  }
  CHECK(std::abs(kept / double{kSeeds} - accepted) < 0.016);
}

TEST_CASE("The first sum is 1 and every share is a whole multiple of 2^-52 that adds up exactly") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    SamplingParams params;
    params.temperature = 0.2 + 3 * random.real();
    const Distribution distribution = distribution_of(random_logits(random, 1 + random.below(6000)), params);
    REQUIRE(distribution.sums[0] == 1.0);
    double before = 0;
    for (std::size_t i = 0; i < distribution.sums.size(); ++i) {
      const double share = distribution.share(i), units = share * 0x1p52;
      REQUIRE(share >= 0);
      REQUIRE(units == std::floor(units));
      REQUIRE(before + share == distribution.sums[i]);
      before = distribution.sums[i];
    }
  }
}

TEST_CASE("Tokens drawn by rejection follow the target's distribution, cuts and all, whatever drafted them") {
  const Logits target = {2.0f, 1.5f, 1.0f, 0.2f, -0.5f, -1.0f, 1.2f, -3.0f};
  const Logits draft = {0.0f, 2.2f, -1.0f, 1.9f, 0.3f, -1.0f, 1.0f, 2.0f};  // 7 is cut from the target
  SamplingParams params;
  params.temperature = 0.8;
  params.top_k = 6;
  params.top_p = 0.95;
  params.min_p = 0.06;
  params.logit_bias = {{2, 0.4f}};
  const Distribution p = distribution_of(target, params), q = distribution_of(draft, params);
  CHECK(p.tokens.size() < 6);
  CHECK(q.tokens != p.tokens);
  double overlap = 0;
  for (std::int32_t token = 0; token < 8; ++token) overlap += std::min(share_of(p, token), share_of(q, token));
  CHECK(overlap < 0.7);
  recovers(target, params, overlap, [&](const SamplePoint& point) { return draft_at(draft, point); });
}

TEST_CASE("A looked up candidate is accepted with the target's probability, and refused it is not drawn again") {
  const Logits target = {1.0f, 0.0f, 0.5f, -1.0f};
  SamplingParams params;
  params.top_p = 0.9;
  const Distribution p = distribution_of(target, params);
  for (const std::int32_t token : {0, 1, 2, 3}) {
    CAPTURE(token);
    recovers(target, params, share_of(p, token), [&](const SamplePoint&) { return point_mass(token); });
    for (const double residual : {0.0, 0.5, kLast}) {
      const auto redrawn = accept_or_redraw(p, point_mass(token), kLast, residual, scratch());
      REQUIRE(redrawn.ok());
      CHECK(*redrawn != token);
      CHECK(share_of(p, *redrawn) > 0);
    }
  }
  CHECK(*accept_or_redraw(p, point_mass(3), 0.0, 0.0, scratch()) == 0);  // cut: never accepted
  CHECK(*accept_or_redraw(p, point_mass(1), 0.0, 0.9, scratch()) == 1);
}

TEST_CASE("What is drafted from the target's own distribution is always accepted, and is what `sample` draws") {
  for (std::uint32_t position = 0; position < 500; ++position) {
    CAPTURE(position);
    Random random(position + 1);
    const Logits logits = random_logits(random, 2 + random.below(5000));
    SamplingParams params;
    params.seed = random.bits();
    params.temperature = 0.3 + random.real();
    params.top_p = 1.0 - 0.3 * random.real();
    const SamplePoint point{params, 2, position, {}, {}};
    const Draft draft = draft_at(logits, point);
    CHECK(verified(logits, point, draft).token == draft.token);
    CHECK(*accept_or_redraw(draft.distribution, draft, kLast, 0.5, scratch()) == draft.token);
    const auto alone = sample(logits, params, 2, position, {}, {}, -1, scratch());
    REQUIRE(alone.ok());
    CHECK(alone->token == draft.token);
  }
}

TEST_CASE("However close the two distributions are, a refused candidate leaves a token that the target favours") {
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Logits logits = random_logits(random, 2 + random.below(300));
    Logits close = logits;  // a step or two away, and half of the time at one token only
    const auto moved = random.below(static_cast<std::uint32_t>(close.size()));
    for (std::size_t i = 0; i < close.size(); ++i)
      if (seed % 2 == 0 || i == moved) close[i] = std::nextafter(close[i], random.below(2) == 0 ? -99.0f : 99.0f);
    SamplingParams params;
    params.temperature = 0.2 + random.real();
    const Distribution p = distribution_of(logits, params);
    Draft draft{0, distribution_of(close, params)};
    for (const std::int32_t token : draft.distribution.tokens) {
      if (share_of(draft.distribution, token) == 0) continue;  // is never drawn
      draft.token = token;
      for (const double residual : {0.0, kLast}) {
        const auto result = accept_or_redraw(p, draft, kLast, residual, scratch());
        REQUIRE_MESSAGE(result.ok(), std::string(result.status().message));
        refused += *result != token;
        if (*result != token) REQUIRE(share_of(p, *result) >= share_of(draft.distribution, *result));
      }
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("One unit of one share is refused in favour of the others, though their quotients round to the same") {
  int lost = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const double whole = 4 - (1 + random.below(1 << 20)) * 0x1p-21, unit = 0x1p-51;
    const Distribution p{{4, 2, 7, 9}, {1, 2, 3, whole}}, q{{4, 2, 7, 9}, {1, 2, 3, whole + unit}};
    lost += share_of(p, 4) == share_of(q, 4);
    for (const double residual : {0.0, 0.5, kLast}) {
      const auto result = accept_or_redraw(p, {9, q}, kLast, residual, scratch());
      REQUIRE_MESSAGE(result.ok(), std::string(result.status().message));
      CHECK(*result != 9);
    }
  }
  MESSAGE(lost, " of 500 pairs have no residual in rounded quotients (seeds 1..500)");
  CHECK(lost > 100);
}

TEST_CASE("A candidate that its distribution never gives, refused where nothing is left, is an error") {
  const SamplingParams params;
  const Distribution p = distribution_of({1.0f, 0.5f, -0.5f}, params);
  const auto result = accept_or_redraw(p, {7, p}, 0.5, 0.5, scratch());
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code == Code::internal);
  CHECK(std::string(result.status().message).starts_with("candidate 7 was refused"));
}

TEST_CASE("Greedy requests get the target's best token, whatever was drafted") {
  SamplingParams params;
  params.temperature = 0;
  const Logits target = {1, 5, 5, 2};
  for (std::uint32_t position = 0; position < 50; ++position)
    for (const std::int32_t token : {0, 1, 2, 3})
      CHECK(verified(target, {params, 0, position, {}, {}}, point_mass(token)).token == 1);
  params.temperature = 1, params.top_k = 1;
  CHECK(verified(target, {params, 0, 3, {}, {}}, draft_at({9, 1, 1, 1}, {params, 0, 3, {}, {}})).token == 1);
}

TEST_CASE("Penalties and logprobs are those of a row without a draft") {
  SamplingParams params;
  params.presence_penalty = 2;
  const std::vector<std::int32_t> generated = {0};
  const SamplePoint point{params, 0, 4, {}, generated};
  const Logits logits = {std::log(0.5f), std::log(0.25f), std::log(0.25f)};
  const Sampled sampled = verified(logits, point, point_mass(1), 2);
  CHECK(std::abs(sampled.logprob - logits[static_cast<std::size_t>(sampled.token)]) < 1e-6f);
  REQUIRE(sampled.top.size() == 2);
  CHECK(sampled.top[0].token == 0);
  Distribution penalised;
  REQUIRE(distribute(logits, point, scratch(), penalised).ok());
  CHECK(penalised.tokens[0] == 1);
  const auto nan = sample_with_draft(Logits{1, std::nanf("")}, point, point_mass(1), -1, scratch());
  REQUIRE_FALSE(nan.ok());
  CHECK(std::string(nan.status().message).starts_with("the logit of token 1 is NaN"));
}

TEST_CASE("The four purposes of a place have four uniforms") {
  const DrawPurpose purposes[] = {DrawPurpose::token, DrawPurpose::acceptance, DrawPurpose::exit,
                                  DrawPurpose::residual};
  for (std::uint32_t position = 0; position < 100; ++position)
    for (const DrawPurpose one : purposes)
      for (const DrawPurpose other : purposes)
        CHECK((uniform(3, 1, position, one) == uniform(3, 1, position, other)) == (one == other));
}

}  // namespace
}  // namespace tessera
