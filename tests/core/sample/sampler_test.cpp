#include "sample/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "base/random.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
using Tokens = std::vector<std::int32_t>;

Result<Sampled> choose(const std::vector<float>& logits, const SamplingParams& params, std::uint32_t position = 0,
                       const Tokens& prompt = {}, const Tokens& generated = {}, std::int32_t top = -1) {
  static SampleScratch scratch;  // shared on purpose: an answer must not depend on what the scratch held
  return sample(logits, params, 0, position, prompt, generated, top, scratch);
}

std::int32_t pick(const std::vector<float>& logits, const SamplingParams& params, std::uint32_t position = 0,
                  const Tokens& prompt = {}, const Tokens& generated = {}) {
  auto result = choose(logits, params, position, prompt, generated);
  REQUIRE_MESSAGE(result.ok(), std::string(result.status().message));
  return result->token;
}

/// Every token that appears in `draws` draws.
Tokens support(const std::vector<float>& logits, SamplingParams params, int draws = 2000) {
  Tokens seen;
  for (int i = 0; i < draws; ++i) seen.push_back(pick(logits, params, static_cast<std::uint32_t>(i)));
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  return seen;
}

std::vector<float> random_logits(Random& random, std::size_t count, bool coarse) {
  std::vector<float> logits(count);
  for (float& logit : logits) {
    logit = random.real(-6.0f, 6.0f);
    if (coarse) logit = std::round(logit);  // many ties
  }
  return logits;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0;
  return params;
}

TEST_CASE("Philox gives the published known answers") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox({0, 0}, {0, 0, 0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("The uniform lies in [0, 1), averages one half and changes with each of its four arguments") {
  CHECK(uniform(0, 0, 0, DrawPurpose::token) == static_cast<double>(0x6627e8d5e169c58dULL >> 11) * 0x1p-53);
  const double base = uniform(1, 2, 3, DrawPurpose::token);
  CHECK(base == uniform(1, 2, 3, DrawPurpose::token));
  CHECK(base != uniform(2, 2, 3, DrawPurpose::token));
  CHECK(base != uniform(1ULL << 32 | 1, 2, 3, DrawPurpose::token));
  CHECK(base != uniform(1, 3, 3, DrawPurpose::token));
  CHECK(base != uniform(1, 2, 4, DrawPurpose::token));
  CHECK(base != uniform(1, 2, 3, DrawPurpose::acceptance));
  double sum = 0;
  for (std::uint32_t i = 0; i < 10000; ++i) {
    const double u = uniform(7, 0, i, DrawPurpose::token);
    REQUIRE(u >= 0.0);
    REQUIRE(u < 1.0);
    sum += u;
  }
  CHECK(std::abs(sum / 10000 - 0.5) < 0.015);
}

TEST_CASE("Temperature 0 takes the best logit and the lowest id among equals") {
  CHECK(pick({1, 5, 5, 2}, greedy()) == 1);
  CHECK(pick({-0.0f, 0.0f}, greedy()) == 0);
  CHECK(pick({0.0f, -0.0f}, greedy()) == 0);
  CHECK(pick({1, kInfinity, 2, kInfinity}, greedy()) == 1);
}

TEST_CASE("Logit bias comes before everything else") {
  SamplingParams params = greedy();
  params.logit_bias = {{3, 10.0f}, {1, -100.0f}};
  CHECK(pick({1, 5, 4, 2}, params) == 3);
  params.logit_bias = {{9, 1.0f}};
  const auto result = choose({1, 2}, params);
  REQUIRE_FALSE(result.ok());
  CHECK(std::string(result.status().message).find("token 9") != std::string::npos);
}

TEST_CASE("The repetition penalty divides positive and multiplies negative logits, once a token, prompt included") {
  SamplingParams params = greedy();
  params.repetition_penalty = 2.0;
  CHECK(pick({6, 4}, params, 0, {0}, {}) == 1);            // 3 < 4
  CHECK(pick({6, 2.5f}, params, 0, {0, 0, 0}, {0}) == 0);  // 3 > 2.5: not applied again
  CHECK(pick({-1, -1.5f}, params, 0, {0}, {}) == 1);       // -2 < -1.5
}

TEST_CASE("Presence and frequency penalties count generated tokens only") {
  SamplingParams params = greedy();
  params.presence_penalty = 1.5;
  CHECK(pick({6, 5}, params, 0, {0, 0}, {}) == 0);
  CHECK(pick({6, 5}, params, 0, {}, {0}) == 1);
  CHECK(pick({6, 4}, params, 0, {}, {0, 0, 0}) == 0);
  params.presence_penalty = 0;
  params.frequency_penalty = 0.75;
  CHECK(pick({6, 4}, params, 0, {}, {0, 0}) == 0);
  CHECK(pick({6, 4}, params, 0, {}, {0, 0, 0}) == 1);
}

TEST_CASE("A history token outside the vocabulary is refused and leaves the scratch clean") {
  SamplingParams params = greedy();
  params.presence_penalty = 2;
  CHECK_FALSE(choose({6, 5}, params, 0, {}, {0, 7}).ok());
  CHECK(pick({6, 5}, params) == 0);
}

TEST_CASE("Top-k keeps k tokens, ties by id") {
  SamplingParams params;
  params.temperature = 50;
  params.top_k = 2;
  CHECK(support({1, 3, 3, 3}, params) == Tokens{1, 2});
  params.top_k = 1;
  CHECK(support({1, 3, 3, 3}, params) == Tokens{1});
}

TEST_CASE("Top-p keeps the smallest prefix that reaches it, over what top-k left") {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  SamplingParams params;
  params.top_p = 0.75;
  CHECK(support(logits, params) == Tokens{0, 1});
  params.top_p = 0.01;
  CHECK(support(logits, params) == Tokens{0});
  params.top_p = 0.6;
  params.top_k = 2;  // renormalized: 0.625, 0.375
  CHECK(support(logits, params) == Tokens{0});
}

TEST_CASE("Min-p drops tokens below that share of the best") {
  SamplingParams params;
  params.min_p = 0.25;
  CHECK(support({std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)}, params) == Tokens{0, 1, 2});
}

TEST_CASE("Draws follow the distribution") {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.1f), std::log(0.4f)};
  SamplingParams params;
  params.seed = 42;
  int counts[3] = {};
  for (std::uint32_t i = 0; i < 20000; ++i) ++counts[pick(logits, params, i)];
  CHECK(std::abs(counts[0] / 20000.0 - 0.5) < 0.015);
  CHECK(std::abs(counts[1] / 20000.0 - 0.1) < 0.01);
  CHECK(std::abs(counts[2] / 20000.0 - 0.4) < 0.015);
}

TEST_CASE("A NaN logit is refused with its id and an all -inf row is refused") {
  for (const double temperature : {0.0, 1.0}) {
    SamplingParams params;
    params.temperature = temperature;
    const auto result = choose({1, 2, std::nanf(""), std::nanf("")}, params);
    REQUIRE_FALSE(result.ok());
    CHECK(result.status().code == Code::internal);
    CHECK(std::string(result.status().message).find("token 2") != std::string::npos);
    CHECK_FALSE(choose({-kInfinity, -kInfinity}, params).ok());
    CHECK(pick({-kInfinity, -3, -kInfinity}, params) == 1);
  }
  SamplingParams params;
  params.temperature = 100;
  CHECK(support({-kInfinity, 0, 1, -kInfinity}, params) == Tokens{1, 2});
  CHECK(support({0, kInfinity, 1, kInfinity}, params) == Tokens{1, 3});
}

TEST_CASE("Logprobs are of the raw distribution and ranked in canonical order") {
  SamplingParams params = greedy();
  params.logit_bias = {{2, 100.0f}};
  const auto result = choose({std::log(0.25f), std::log(0.25f), std::log(0.5f), -kInfinity}, params, 0, {}, {}, 3);
  REQUIRE(result.ok());
  CHECK(result->token == 2);
  CHECK(std::abs(result->logprob - std::log(0.5f)) < 1e-6f);
  REQUIRE(result->top.size() == 3);
  CHECK(result->top[0].token == 2);
  CHECK(result->top[1].token == 0);
  CHECK(result->top[2].token == 1);
  CHECK(std::abs(result->top[1].logprob - std::log(0.25f)) < 1e-6f);
  const auto none = choose({1, 2}, greedy());
  REQUIRE(none.ok());
  CHECK(std::isnan(none->logprob));
  CHECK(none->top.empty());
  const auto all = choose({1, 2, 3}, greedy(), 0, {}, {}, 20);
  REQUIRE(all.ok());
  CHECK(all->top.size() == 3);
}

TEST_CASE("A large vocabulary, which is ranked by counting, is ranked canonically") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::vector<float> logits = random_logits(random, 4097 + random.below(9000), seed % 2 == 0);
    Tokens expected(logits.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    const auto result = choose(logits, greedy(), 0, {}, {}, static_cast<std::int32_t>(logits.size()));
    REQUIRE(result.ok());
    REQUIRE(result->top.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) REQUIRE(result->top[i].token == expected[i]);
  }
}

TEST_CASE("A top-k of the whole vocabulary draws what no top-k draws") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::vector<float> logits = random_logits(random, 2 + random.below(8000), seed % 2 == 0);
    SamplingParams params;
    params.seed = seed;
    params.temperature = 0.3 + random.real();
    params.top_p = 1.0 - 0.5 * random.real();
    SamplingParams limited = params;
    limited.top_k = static_cast<std::int32_t>(logits.size());
    for (std::uint32_t position = 0; position < 10; ++position)
      REQUIRE(pick(logits, params, position) == pick(logits, limited, position));
  }
}

}  // namespace
}  // namespace tessera
