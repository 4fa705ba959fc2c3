#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "support.h"

using namespace tessera;

namespace {

using Choices = std::map<std::int32_t, Recorder::Choice>;

struct Setting {
  std::string model, kind;
  bool sparse = false;
  std::int32_t draft_tokens = 4;
  std::string acceptance = "rejection";
  std::int64_t pages = 256;
  std::int32_t chunk_cap = 0;
  std::int32_t draft_loops = 2;
};

Config config_of(const Setting& setting) {
  Config config = config_with("");
  config.model.path = std::string(TESSERA_SOURCE_DIR) + "/models/" + setting.model;
  config.cache.pages = setting.pages;
  config.scheduler.chunk_cap = setting.chunk_cap;
  config.speculation.kind = setting.kind;
  config.speculation.draft_tokens = setting.draft_tokens;
  config.speculation.draft_loops = setting.draft_loops;
  config.speculation.acceptance = setting.acceptance;
  if (setting.sparse) config.sparse_decode.plugin = {.name = "loop_reference", .path = {}, .options = {}, .where = {}};
  return config;
}

/// "abcdef" again and again, and a plain model answers mostly in these letters: there is something to look up.
Request repetitive(const Bench& bench, std::uint64_t seed, double temperature, std::int32_t max_tokens = 40) {
  Request request = request_of(6, max_tokens);
  for (int i = 0; i < 12; ++i) request.prompt.push_back(100 + i % 6);
  request.sampling.temperature = temperature;
  request.sampling.seed = seed;
  request.sampling.presence_penalty = 0.4;
  request.sampling.top_p = 0.95;
  request.top_logprobs = 2;
  request.num_choices = 2;
  const Runner& runner = bench.engine->runner();
  request.loops.max = runner.spec().loops;
  for (std::int32_t token = 100; token < 106 && request.loops.max == 1; ++token)
    request.sampling.logit_bias.push_back({token, 100.0f});
  request.loops.sparse_from = runner.sparse_from();
  return request;
}

/// The answer of seed 5 beside `neighbours` others, one of which is cancelled in its rounds.
Choices answer(Bench& bench, double temperature, int neighbours) {
  std::vector<Recorder> others(static_cast<std::size_t>(neighbours));
  Recorder recorder;
  const auto ticket = [](std::size_t i) { return 2 + static_cast<std::uint64_t>(i); };
  for (std::size_t i = 0; i < others.size(); ++i) {
    Request other = repetitive(bench, 50 + i, i == 1 ? 0.0 : 1.1, 25 + static_cast<std::int32_t>(5 * i));
    other.prompt.resize(7 + i);
    REQUIRE(bench.engine->submit(ticket(i), std::move(other), others[i]).ok());
  }
  REQUIRE(bench.engine->submit(1, repetitive(bench, 5, temperature), recorder).ok());
  for (int step = 0; bench.engine->step(); ++step)
    if (step == 11 && neighbours > 0) bench.engine->cancel(ticket(0));
  CHECK(bench.engine->idle());
  CHECK(bench.metric("tessera_kv_pages_in_use 0"));
  CHECK(bench.metric("tessera_references_in_use 0"));
  CHECK(recorder.terminals == 1);
  REQUIRE_MESSAGE(recorder.last == sdk::EventKind::finished, recorder.reason);
  for (const Recorder& other : others) CHECK(other.terminals == 1);
  return recorder.choices;
}

Choices answer(const Setting& setting, double temperature, int neighbours = 0) {
  Bench bench(config_of(setting));
  return answer(bench, temperature, neighbours);
}

const Setting kSettings[] = {
    {"tessera-looped", "self"}, {"tessera-looped", "self", true}, {"tessera-dense", "prompt_lookup"}};

}  // namespace

TEST_CASE("rejection sampling answers the same alone, again and beside neighbours, and everything it held returns") {
  for (const Setting& setting : kSettings) {
    CAPTURE(setting.model);
    CAPTURE(setting.sparse);
    Bench bench(config_of(setting));
    const Choices alone = answer(bench, 0.9, 0);
    REQUIRE(alone.at(0).tokens.size() == 40);
    CHECK(alone.at(0).tokens != alone.at(1).tokens);
    CHECK(answer(bench, 0.9, 0) == alone);
    CHECK(answer(bench, 0.9, 4) == alone);
    CHECK_FALSE(bench.metric("tessera_speculation_rounds 0"));
    Setting exact = setting;
    exact.acceptance = "exact";
    CHECK(answer(exact, 0.9) != alone);  // other draws of the same distribution
  }
}

TEST_CASE("rejection sampling confirms and refuses candidates, and greedy answers are those of exact acceptance") {
  for (const Setting& setting : kSettings) {
    CAPTURE(setting.model);
    Bench bench(config_of(setting));
    Setting other = setting;
    other.acceptance = "exact";
    Bench exact(config_of(other));
    CHECK(answer(bench, 0.0, 0) == answer(exact, 0.0, 0));
    const SchedulerStats &found = bench.engine->stats(), &wanted = exact.engine->stats();
    CHECK(found.rounds == wanted.rounds);  // and nothing is drafted beyond what it needs
    CHECK(found.steps == wanted.steps);
    answer(bench, 0.9, 0);
    std::int64_t confirmed = 0, candidates = 0;
    for (std::size_t i = 0; i < found.candidates.size(); ++i)
      confirmed += found.confirmed[i] - wanted.confirmed[i], candidates += found.candidates[i] - wanted.candidates[i];
    CHECK(confirmed > 0);
    CHECK(confirmed < candidates);
  }
}

TEST_CASE("answers by rejection do not depend on the lengths of rounds, on chunks, or on a pool that preempts them") {
  for (const Setting& setting : kSettings) {
    CAPTURE(setting.model);
    CAPTURE(setting.sparse);
    const Choices wanted = answer(setting, 0.9);
    for (const std::int32_t draft_tokens : {1, 2, 3, 8}) {
      Setting other = setting;
      other.draft_tokens = draft_tokens, other.chunk_cap = draft_tokens;
      CHECK(answer(other, 0.9) == wanted);
    }
    Setting tight = setting;
    for (const std::int32_t blocks : {4, 5, 6}) {
      tight.pages = blocks * (setting.kind == "self" ? 4 : 1);
      Bench bench(config_of(tight));
      CHECK(answer(bench, 0.9, 3) == wanted);
      CHECK(bench.engine->stats().preemptions > 0);
    }
  }
}

TEST_CASE("tokens of drafted answers come as often by rejection as by exact acceptance") {
  constexpr int kRequests = 100, kChoices = 16;
  std::vector<std::map<std::int32_t, double>> shares;  // of the pairs of the last two tokens, both of them drafted
  Setting setting = kSettings[0];
  setting.draft_loops = 1;  // further from the target than two
  for (const char* acceptance : {"exact", "rejection"}) {
    setting.acceptance = acceptance;
    Bench bench(config_of(setting));
    std::map<std::int32_t, double> share;
    for (int i = 0; i < kRequests; ++i) {
      Request request = repetitive(bench, static_cast<std::uint64_t>(1000 + i), 2.5, 3);
      request.prompt.resize(6);
      request.num_choices = kChoices;
      for (std::int32_t token = 100; token < 104; ++token)  // everything else comes once in e^40
        request.sampling.logit_bias.push_back({token, 100.0f});
      Recorder recorder;
      REQUIRE(bench.engine->submit(1, std::move(request), recorder).ok());
      while (bench.engine->step()) {
      }
      REQUIRE(recorder.choices.size() == kChoices);
      for (const auto& [index, choice] : recorder.choices)
        share[choice.tokens.at(1) * 100000 + choice.tokens.at(2)] += 1.0 / (kRequests * kChoices);
    }
    shares.push_back(share);
  }
  double apart = 0;
  for (const auto& [pair, share] : shares[0]) apart += std::abs(share - shares[1][pair]) / 2;
  for (const auto& [pair, share] : shares[1]) apart += shares[0].contains(pair) ? 0 : share / 2;
  MESSAGE(shares[0].size(), " pairs of tokens, the two laws are ", apart, " apart (seeds 1000..1099)");
  CHECK(shares[0].size() > 12);
  CHECK(apart < 0.1);
}

TEST_CASE("a request of one loop or of early exits is not drafted, and rejection leaves its answer alone") {
  Setting setting = kSettings[0];
  std::vector<std::vector<std::int32_t>> answers;
  for (const char* acceptance : {"exact", "rejection"}) {
    setting.acceptance = acceptance;
    Bench bench(config_of(setting));
    for (const bool exits : {false, true}) {
      Request request = repetitive(bench, 9, 0.9);
      if (exits) request.loops.exit_threshold = 0.8f;
      if (!exits) request.loops.max = 2;
      Recorder recorder;
      REQUIRE(bench.engine->submit(1, std::move(request), recorder).ok());
      while (bench.engine->step()) {
      }
      answers.push_back(recorder.choices.at(0).tokens);
    }
    CHECK(bench.metric("tessera_speculation_rounds 0"));
  }
  CHECK(answers[0] == answers[2]);
  CHECK(answers[1] == answers[3]);
}

TEST_CASE("the fingerprint names rejection with what it drafts, and exact speculation not at all") {
  auto plugins = registry();
  const auto fingerprint = [&](const std::string& kind, const std::string& acceptance, std::int32_t tokens = 3,
                               std::int32_t loops = 2) {
    Config config = config_of({.model = "tessera-looped", .kind = kind, .acceptance = acceptance});
    config.speculation.draft_tokens = tokens, config.speculation.draft_loops = loops;
    const auto runner = Runner::open(config, plugins, {});
    REQUIRE_MESSAGE(runner.ok(), runner.status().message);
    return (*runner)->fingerprint();
  };
  const std::string plain = fingerprint("none", "exact"), rejection = fingerprint("self", "rejection");
  CHECK(fingerprint("none", "rejection") == plain);
  CHECK(fingerprint("self", "exact") == plain);
  CHECK(fingerprint("self", "exact", 5, 1) == plain);
  CHECK(rejection != plain);
  CHECK(fingerprint("self", "rejection", 4) != rejection);
  CHECK(fingerprint("self", "rejection", 3, 1) != rejection);
  CHECK(fingerprint("prompt_lookup", "rejection") != rejection);
}
