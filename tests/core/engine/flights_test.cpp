// Rounds on the device, two in flight: requests are told what they would be told without them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "support.h"

using namespace tessera;

namespace {

/// Everything that a request is told of each choice, one line an event.
struct Told final : sdk::EventSink {
  void on_event(const sdk::EventView& event) noexcept override {
    late += terminals;
    if (event.kind == sdk::EventKind::delta || event.kind == sdk::EventKind::choice_done)
      choices[event.choice].push_back(line_of(event));
    if (event.kind == sdk::EventKind::delta) text[event.choice] += event.text;
    const bool terminal = event.kind == sdk::EventKind::finished || event.kind == sdk::EventKind::failed ||
                          event.kind == sdk::EventKind::cancelled;
    if (!terminal) return;
    ++terminals;
    last = event.kind;
    completion_tokens = event.usage.completion_tokens;
    if (event.status != nullptr) reason = event.status->message;
  }

  static std::string number(float value) {  // of all that are no number there is one
    return std::isnan(value) ? "none" : std::to_string(std::bit_cast<std::uint32_t>(value));
  }
  static std::string line_of(const sdk::EventView& event) {
    std::string line = event.kind == sdk::EventKind::delta ? "delta" : "done";
    line += " finish " + std::to_string(static_cast<std::uint32_t>(event.finish)) + " match '" +
            std::string(event.stop_match) + "' text '" + std::string(event.text) + "'";
    for (const sdk::TokenView& token : event.tokens) {
      line += " token " + std::to_string(token.chosen.token) + " " + number(token.chosen.logprob);
      for (const sdk::TokenProb& top : token.top) line += " " + std::to_string(top.token) + " " + number(top.logprob);
    }
    return line;
  }

  std::map<std::int32_t, std::vector<std::string>> choices;
  std::map<std::int32_t, std::string> text;
  sdk::EventKind last = sdk::EventKind::started;
  std::string reason;
  std::int32_t completion_tokens = 0;
  int terminals = 0;
  int late = 0;  // events after the terminal one
};

Config flying(Config config) {
  config.speculation.kind = "self";
  config.speculation.rounds_in_flight = 2;
  return config;
}

Config dense_config() {
  Config config = looped_config("", "0.1");
  config.sparse_decode.plugin = {};
  return config;
}

Request greedy_request(const Bench& bench, std::int32_t prompt, std::int32_t max_tokens) {
  Request request = request_of(prompt, max_tokens);
  request.loops = {.max = 4, .sparse_from = bench.engine->runner().sparse_from()};
  return request;
}

/// Its tokens are the host's to draw.
Request sampled_request(const Bench& bench, std::int32_t prompt, std::int32_t max_tokens) {
  Request request = greedy_request(bench, prompt, max_tokens);
  request.sampling.temperature = 0.9, request.sampling.seed = 5;
  request.top_logprobs = 2;
  return request;
}

void run(Bench& bench) {
  while (bench.engine->step()) {
  }
}

void check_drained(const Bench& bench) {
  CHECK(bench.engine->idle());
  CHECK(bench.engine->pages().in_use() == 0);
  CHECK(bench.engine->references().outstanding() == 0);
  CHECK(bench.metric("tessera_kv_pages_in_use 0"));
}

struct Answers {
  Told greedy, sampled, other;
};

/// One greedy request of two choices, a sampled one with logprobs, and a greedy one that is cancelled after some steps.
Answers answers_of(Bench& bench, const std::string& stop, int cancel_after) {
  Answers answers;
  Request greedy = greedy_request(bench, 20, 24);
  greedy.num_choices = 2;
  if (!stop.empty()) greedy.stops = {stop};
  Request other = greedy_request(bench, 15, 24);
  std::reverse(other.prompt.begin(), other.prompt.end());
  REQUIRE(bench.engine->submit(1, std::move(greedy), answers.greedy).ok());
  REQUIRE(bench.engine->submit(2, sampled_request(bench, 11, 24), answers.sampled).ok());
  REQUIRE(bench.engine->submit(3, std::move(other), answers.other).ok());
  for (int step = 1; bench.engine->step(); ++step)
    if (step == cancel_after) bench.engine->cancel(3);
  check_drained(bench);
  for (const Told* told : {&answers.greedy, &answers.sampled, &answers.other}) {
    CHECK(told->terminals == 1);
    CHECK(told->late == 0);
  }
  return answers;
}

void check_equal(const Told& found, const Told& wanted) {
  CHECK(found.choices == wanted.choices);
  CHECK(found.last == wanted.last);
  CHECK(found.completion_tokens == wanted.completion_tokens);
}

void check_begins(const Told& cancelled, const Told& whole) {
  CHECK(cancelled.last == sdk::EventKind::cancelled);
  if (cancelled.choices.empty()) return;
  const std::vector<std::string>&begin = cancelled.choices.at(0), &all = whole.choices.at(0);
  REQUIRE(begin.size() <= all.size());
  CHECK(std::equal(begin.begin(), begin.end(), all.begin()));
}

}  // namespace

TEST_CASE("answers with two rounds in flight are the same events: choices, stops, and a sampled neighbour's logprobs") {
  for (const Config& config : {dense_config(), looped_config("", "0.1")}) {
    CAPTURE(config.sparse_decode.plugin.name);
    Bench plain(config), flights(flying(config));
    const std::string text = answers_of(plain, "", 0).greedy.text.at(0);
    REQUIRE(text.size() > 12);
    std::vector<std::string> stops{""};
    for (std::size_t at = 1; at + 3 < text.size(); at += 7) stops.push_back(text.substr(at, 3));
    for (const std::string& stop : stops) {
      CAPTURE(stop);
      const Answers wanted = answers_of(plain, stop, 0), found = answers_of(flights, stop, 0);
      check_equal(found.greedy, wanted.greedy);
      check_equal(found.sampled, wanted.sampled);
      check_equal(found.other, wanted.other);
    }
    const SchedulerStats& stats = flights.engine->stats();
    MESSAGE(stats.device_rounds, " rounds on the device, ", stats.discarded_rounds, " discarded, ",
            stats.rounds - stats.device_rounds, " in steps");
    CHECK(stats.device_rounds > 20);
    CHECK(stats.discarded_rounds > 0);
    CHECK(stats.rounds > stats.device_rounds);
    CHECK(plain.engine->stats().rounds == 0);
  }
}

TEST_CASE("a cancel at any step takes only its own request, with what it has in flight") {
  const Config config = looped_config("", "0.1");
  Bench plain(config), flights(flying(config));
  const Answers wanted = answers_of(plain, "", 0);
  for (int steps = 1; steps <= 12; ++steps) {
    CAPTURE(steps);
    const Answers found = answers_of(flights, "", steps);
    check_equal(found.greedy, wanted.greedy);
    check_equal(found.sampled, wanted.sampled);
    if (found.other.last != sdk::EventKind::finished) check_begins(found.other, wanted.other);
  }
  MESSAGE(flights.engine->stats().discarded_rounds, " rounds discarded");
  CHECK(flights.engine->stats().discarded_rounds > 8);
}

TEST_CASE("answers are the same where pages are so few that rounds are recalled and requests preempted") {
  Config config = looped_config("", "0.1");
  Bench plain(config);
  const Answers wanted = answers_of(plain, "", 0);
  for (const std::int32_t blocks : {3, 4, 5, 6, 7}) {
    CAPTURE(blocks);
    config.cache.pages = blocks * 4;
    Bench flights(flying(config));
    const Answers found = answers_of(flights, "", 0);
    check_equal(found.greedy, wanted.greedy);
    check_equal(found.sampled, wanted.sampled);
    check_equal(found.other, wanted.other);
    const SchedulerStats& stats = flights.engine->stats();
    MESSAGE(blocks, " blocks: ", stats.device_rounds, " rounds on the device, ", stats.preemptions, " preemptions");
    CHECK(stats.device_rounds > 0);
    CHECK(stats.preemptions > 0);
  }
}

TEST_CASE("the last rounds of an answer are told while its neighbours' steps go on") {
  Bench bench(flying(dense_config()));
  Told greedy, sampled;
  REQUIRE(bench.engine->submit(1, greedy_request(bench, 20, 14), greedy).ok());
  REQUIRE(bench.engine->submit(2, sampled_request(bench, 11, 150), sampled).ok());
  while (greedy.terminals == 0) REQUIRE(bench.engine->step());
  CHECK(bench.engine->stats().device_rounds > 0);
  CHECK(sampled.terminals == 0);
  CHECK(sampled.choices[0].size() < 75);
  run(bench);
  check_drained(bench);
}

TEST_CASE("a request that flies goes on while the prompt of another is computed") {
  Config config = flying(dense_config());
  config.scheduler.chunk_cap = 4;
  Bench bench(config);
  Told greedy, other;
  REQUIRE(bench.engine->submit(1, greedy_request(bench, 8, 100), greedy).ok());
  while (bench.engine->stats().device_rounds == 0) REQUIRE(bench.engine->step());
  REQUIRE(bench.engine->submit(2, greedy_request(bench, 160, 4), other).ok());
  const std::size_t before = greedy.choices[0].size();
  while (other.choices.empty()) REQUIRE(bench.engine->step());
  CHECK(greedy.choices[0].size() >= before + 20);  // some forty chunks of four loops: a token each few steps
  run(bench);
  check_drained(bench);
}

TEST_CASE("the metrics tell what the selections of a round in flight kept") {
  Bench bench(flying(looped_config("", "0.1")));
  Told told;
  REQUIRE(bench.engine->submit(1, greedy_request(bench, 60, 12), told).ok());
  const std::string name = "tessera_sparse_retained_mass{layer=\"2\",statistic=\"mean\"} ";
  std::string text;
  while (text.find(name) == std::string::npos) {
    REQUIRE(bench.engine->step());
    text = bench.metrics.text();
  }
  CHECK(bench.engine->stats().captured_rows == 0);  // no step has captured any: the round has not landed
  const float mean = std::stof(text.substr(text.find(name) + name.size()));
  CHECK((mean > 0.1f && mean < 1.0f));
  run(bench);
  check_drained(bench);
}

TEST_CASE("a last request that ends with rounds in flight leaves nothing behind, and the metrics say so") {
  Bench bench(flying(looped_config("", "0.1")));
  for (const bool cancelled : {true, false}) {
    CAPTURE(cancelled);
    Told whole, told;
    REQUIRE(bench.engine->submit(1, greedy_request(bench, 20, 24), whole).ok());
    run(bench);
    Request request = greedy_request(bench, 20, 24);
    if (!cancelled) request.stops = {whole.text.at(0).substr(6, 3)};
    const std::int64_t before = bench.engine->stats().discarded_rounds;
    REQUIRE(bench.engine->submit(2, std::move(request), told).ok());
    for (int step = 1; told.terminals == 0; ++step) {
      REQUIRE(bench.engine->step());
      if (cancelled && step == 8) bench.engine->cancel(2);
    }
    CHECK(bench.engine->idle() == !cancelled);  // a step lands what it has ended
    CHECK((bench.engine->pages().in_use() > 0) == cancelled);
    run(bench);
    CHECK(bench.engine->stats().discarded_rounds > before);
    check_drained(bench);
  }
}

TEST_CASE("an engine may go away with rounds in flight") {
  Told told;
  {
    Bench bench(flying(looped_config("", "0.1")));
    REQUIRE(bench.engine->submit(1, greedy_request(bench, 20, 24), told).ok());
    for (int step = 0; step < 8; ++step) REQUIRE(bench.engine->step());
    bench.engine->cancel_all();
    CHECK_FALSE(bench.engine->idle());
  }
  CHECK(told.terminals == 1);
  CHECK(told.last == sdk::EventKind::cancelled);
}

TEST_CASE("a ticket that is used again while rounds of its last request are in flight is another request") {
  Bench bench(flying(looped_config("", "0.1")));
  Told wanted;
  Request other = greedy_request(bench, 20, 12);
  std::reverse(other.prompt.begin(), other.prompt.end());
  REQUIRE(bench.engine->submit(1, other, wanted).ok());
  run(bench);
  for (int steps = 1; steps < 12; ++steps) {  // wherever in its rounds the first one is
    CAPTURE(steps);
    Told first, second;
    REQUIRE(bench.engine->submit(7, greedy_request(bench, 20, 40), first).ok());
    for (int step = 0; step < steps; ++step) bench.engine->step();
    bench.engine->cancel(7);
    const std::size_t before = first.choices[0].size();
    REQUIRE(bench.engine->submit(7, other, second).ok());
    run(bench);
    CHECK(first.last == sdk::EventKind::cancelled);
    CHECK(first.late == 0);
    CHECK(first.choices[0].size() == before);
    check_equal(second, wanted);
    check_drained(bench);
  }
  CHECK(bench.engine->stats().discarded_rounds > 0);
}

TEST_CASE("a step that fails while rounds are in flight ends their requests too, once, with its reason") {
  Bench bench(flying(looped_config("fails_in_run", "0.1")));
  Told failing, first, second, later;
  REQUIRE(bench.engine->submit(1, sampled_request(bench, 37, 30), failing).ok());
  REQUIRE(bench.engine->submit(2, greedy_request(bench, 4, 34), first).ok());
  REQUIRE(bench.engine->submit(3, greedy_request(bench, 3, 34), second).ok());
  run(bench);
  CHECK(bench.engine->stats().device_rounds > 0);
  CHECK(bench.engine->stats().discarded_rounds > 0);
  for (const Told* told : {&failing, &first, &second}) {
    CHECK(told->last == sdk::EventKind::failed);
    CHECK(told->reason == "fails_in_run: position 40 is too much");
    CHECK(told->terminals == 1);
    CHECK(told->late == 0);
  }
  check_drained(bench);
  REQUIRE(bench.engine->submit(4, greedy_request(bench, 8, 12), later).ok());
  run(bench);
  CHECK(later.last == sdk::EventKind::finished);
  CHECK(later.completion_tokens == 12);
  check_drained(bench);
}

TEST_CASE("a round that fails ends the requests in flight, and its neighbours in the steps do not notice") {
  Bench bench(flying(looped_config("fails_in_run", "0.1")));
  Told alone, failing, beside, sampled, later;
  REQUIRE(bench.engine->submit(1, sampled_request(bench, 5, 20), alone).ok());
  run(bench);
  const std::int64_t before = bench.engine->stats().device_rounds;
  REQUIRE(bench.engine->submit(2, greedy_request(bench, 26, 30), failing).ok());
  REQUIRE(bench.engine->submit(3, greedy_request(bench, 4, 30), beside).ok());
  REQUIRE(bench.engine->submit(4, sampled_request(bench, 5, 20), sampled).ok());
  run(bench);
  CHECK(bench.engine->stats().device_rounds > before);
  CHECK(bench.engine->stats().discarded_rounds > 0);
  for (const Told* told : {&failing, &beside}) {
    CHECK(told->last == sdk::EventKind::failed);
    CHECK(told->reason == "fails_in_run: position 40 is too much");
    CHECK(told->terminals == 1);
    CHECK(told->late == 0);
  }
  check_equal(sampled, alone);
  CHECK(sampled.last == sdk::EventKind::finished);
  check_drained(bench);
  REQUIRE(bench.engine->submit(5, greedy_request(bench, 8, 12), later).ok());
  run(bench);
  CHECK(later.last == sdk::EventKind::finished);
  check_drained(bench);
}

TEST_CASE("rounds in flight of looked up candidates are refused at load") {
  Config config = flying(dense_config());
  config.speculation.kind = "prompt_lookup";
  auto plugins = registry();
  const auto runner = Runner::open(config, plugins, {});
  REQUIRE_FALSE(runner.ok());
  CHECK(runner.status().code == Code::invalid_argument);
  const std::string message = runner.status().message;
  CHECK_MESSAGE(message.find("speculation.rounds_in_flight is 2") != std::string::npos, message);
}
