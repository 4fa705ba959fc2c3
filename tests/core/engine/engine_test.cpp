#include <string>
#include <vector>

#include "bench/checks.h"
#include "bench/simulate.h"
#include "engine/validate.h"
#include "support.h"

using namespace tessera;

TEST_CASE("requests end once each, alone or cancelled, and no page stays in use") {
  Bench bench("");
  Recorder whole, cancelled;
  REQUIRE(bench.engine->submit(1, request_of(20, 8), whole).ok());
  REQUIRE(bench.engine->submit(2, request_of(30, 50), cancelled).ok());
  bench.engine->step();
  bench.engine->cancel(2);
  bench.engine->cancel(2);
  while (bench.engine->step()) {
  }
  CHECK(whole.terminals == 1);
  CHECK(whole.last == sdk::EventKind::finished);
  CHECK(whole.finish == sdk::FinishReason::length);
  CHECK(cancelled.terminals == 1);
  CHECK(cancelled.last == sdk::EventKind::cancelled);
  CHECK(bench.metric("tessera_kv_pages_in_use 0"));
}

TEST_CASE("a stop string ends the answer before it, whatever tokens it is made of") {
  Bench bench("");
  Recorder free_run, stopped;
  REQUIRE(bench.engine->submit(1, request_of(20, 30), free_run).ok());
  while (bench.engine->step()) {
  }
  REQUIRE(free_run.text.size() > 12);
  Request request = request_of(20, 30);
  request.stops = {free_run.text.substr(6, 5)};
  const std::string before = free_run.text.substr(0, free_run.text.find(request.stops[0]));
  REQUIRE(bench.engine->submit(2, std::move(request), stopped).ok());
  while (bench.engine->step()) {
  }
  CHECK(stopped.text == before);
  CHECK(stopped.finish == sdk::FinishReason::stop);
}

TEST_CASE("answers with speculation are the same events: text, tokens, logprobs, stops, and a cancel in a round") {
  struct Kind {
    std::string model, kind;
    std::int32_t draft_tokens;
  };
  for (const Kind& kind : {Kind{"tessera-dense", "prompt_lookup", 8}, Kind{"tessera-looped", "self", 4}}) {
    CAPTURE(kind.model);
    Config config = config_with("");
    config.model.path = std::string(TESSERA_SOURCE_DIR) + "/models/" + kind.model;
    config.cache.pages = 256;
    Bench plain(config);
    config.speculation.kind = kind.kind, config.speculation.draft_tokens = kind.draft_tokens;
    Bench speculative(config);
    const auto run = [&](Bench& bench, double temperature, const std::string& stop) {
      Recorder recorder, cancelled;
      Request request = request_of(6, 40);  // "abcdef" again and again: there is something to look up
      for (int i = 0; i < 12; ++i) request.prompt.push_back(100 + i % 6);
      request.sampling.temperature = temperature, request.sampling.seed = 5;
      request.sampling.presence_penalty = temperature, request.top_logprobs = 2;
      request.num_choices = 2;
      if (!stop.empty()) request.stops = {stop};
      request.loops.max = bench.engine->runner().spec().loops;
      Request other = request;
      REQUIRE(bench.engine->submit(1, std::move(request), recorder).ok());
      REQUIRE(bench.engine->submit(2, std::move(other), cancelled).ok());
      for (int step = 0; bench.engine->step(); ++step)
        if (step == 7) bench.engine->cancel(2);
      CHECK(bench.metric("tessera_kv_pages_in_use 0"));
      CHECK(recorder.terminals == 1);
      return recorder;
    };
    for (const double temperature : {0.0, 0.9}) {
      const Recorder whole = run(plain, temperature, "");
      const std::string text = whole.choices.at(0).text;
      for (const std::string& stop : {std::string(), text.substr(text.size() / 3, 4)}) {
        const Recorder wanted = run(plain, temperature, stop), found = run(speculative, temperature, stop);
        CHECK(found.choices == wanted.choices);
        CHECK(found.finish == wanted.finish);
        CHECK(wanted.choices.at(1).tokens.size() > 1);
      }
    }
    CHECK_FALSE(speculative.metric("tessera_speculation_rounds 0"));
    CHECK(plain.metric("tessera_speculation_rounds 0"));
  }
}

TEST_CASE("a plugin that fails in a step ends the requests of that step, and the engine serves on") {
  Bench bench("fails_in_run");
  Recorder failing, waiting, later;
  REQUIRE(bench.engine->submit(1, request_of(60, 4), failing).ok());
  REQUIRE(bench.engine->step());
  CHECK(failing.last == sdk::EventKind::failed);
  CHECK(failing.reason.find("position 40") != std::string::npos);
  REQUIRE(bench.engine->submit(2, request_of(10, 4), later).ok());
  while (bench.engine->step()) {
  }
  CHECK(later.last == sdk::EventKind::finished);
  CHECK(failing.terminals == 1);
  CHECK(bench.metric("tessera_kv_pages_in_use 0"));
}

TEST_CASE("a plugin that refuses the model's shape refuses the configuration") {
  auto plugins = registry();
  const auto runner = Runner::open(config_with("fails_in_bind"), plugins, {});
  REQUIRE(!runner.ok());
  CHECK(std::string(runner.status().message).find("serves no shape") != std::string::npos);
}

TEST_CASE("a plugin that writes past its output, or less than it, is refused before it serves") {
  auto plugins = registry();
  for (const auto& [name, words] :
       {std::pair{"writes_past", "wrote element"}, {"leaves_gaps", "did not write element"}}) {
    const auto runner = Runner::open(config_with(name), plugins, {});
    REQUIRE(!runner.ok());
    CHECK_MESSAGE(std::string(runner.status().message).find(words) != std::string::npos, runner.status().message);
  }
}

TEST_CASE("sparse decoding of later loops is refused for a model without them") {
  auto plugins = registry();
  Config config = config_with("");
  config.sparse_decode.plugin.name = "loop_reference";
  const auto runner = Runner::open(config, plugins, {});
  REQUIRE(!runner.ok());
  CHECK(std::string(runner.status().message).find("but the model has one loop") != std::string::npos);
}

TEST_CASE("attention plans every step that it runs in, also one of captured rows only") {
  auto plugins = registry();
  Config config = config_with("checks_plan");
  config.model.path = std::string(TESSERA_SOURCE_DIR) + "/models/tessera-looped";
  config.cache.pages = 0;
  config.model.max_context = 64;
  config.sparse_decode.plugin = {.name = "loop_reference", .path = {}, .options = {}, .where = {}};
  auto runner = Runner::open(config, plugins, {});
  REQUIRE_MESSAGE(runner.ok(), runner.status().message);
  std::vector<SimulatedRequest> requests(2);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = {1, 2, 3, 4, 5, 6, 7, 8};
    requests[i].max_tokens = i == 0 ? 2 : 6;  // together, then the second alone
    requests[i].loops = {.max = 4, .sparse_from = 0};
  }
  const auto simulation = simulate(**runner, requests, {.limits = scheduler_limits(config, **runner)});
  REQUIRE_MESSAGE(simulation.ok(), simulation.status().message);
  CHECK(simulation->stats.consumed_rows == 2 * simulation->stats.captured_rows);
  CHECK(simulation->stats.captured_rows == 1 + 5);
}

TEST_CASE("what a request asks of loops is judged by the model") {
  sdk::RequestView view;
  const RequestBounds plain{100, 64}, looped{100, 64, 4, 0.9};
  CHECK(validate(view, plain).ok());
  view.max_loops = 5;
  CHECK(std::string(validate(view, plain).message).starts_with("max_loops is for looped models"));
  CHECK(std::string(validate(view, looped).message) == "max_loops is 5; the model has 1 to 4 (0 = all)");
  view.max_loops = 3;
  CHECK(resolve_loops(view, looped).max == 3);
  CHECK(resolve_loops(view, looped).exit_threshold == 0.9f);
  view.min_loops = 4;
  CHECK(std::string(validate(view, looped).message) == "min_loops is 4; wanted 1 to 3");
  view.min_loops = 1, view.exit_threshold = 1.5;
  CHECK(std::string(validate(view, looped).message) == "exit_threshold is 1.5; wanted a number from 0 to 1");
}

TEST_CASE("the fingerprint names the attention plugin and does not depend on threads") {
  auto plugins = registry();
  Config config = config_with("");
  const auto reference = Runner::open(config, plugins, {});
  config.backend.options = {{"threads", "1", {}}};
  const auto one_thread = Runner::open(config, plugins, {});
  const auto plain = Runner::open(config_with("plain"), plugins, {});
  REQUIRE(reference.ok());
  REQUIRE(one_thread.ok());
  REQUIRE(plain.ok());
  CHECK((*reference)->fingerprint() == (*one_thread)->fingerprint());
  CHECK((*reference)->fingerprint() != (*plain)->fingerprint());
}

TEST_CASE("the check catches an attention whose bits depend on its neighbours, and passes the same one without") {
  for (const bool broken : {true, false}) {
    auto plugins = registry();
    Config config = config_with(broken ? "batch_dependent" : "plain");
    config.cache.pages = 0;
    config.model.max_context = 64;  // short prompts: this is about the check, not about the attention
    const auto rows = run_checks(config, plugins, {{"batch"}, 1});
    REQUIRE(rows.ok());
    std::int64_t bits = 0;
    for (const CheckRow& row : *rows) bits += row.differing_bits;
    CHECK((bits > 0) == broken);
  }
}

TEST_CASE("what the context cannot hold is refused with the numbers") {
  Request request = request_of(10, 0);
  CHECK(fit_context(request, 0, {2048, 16}).ok());
  CHECK(request.max_tokens == 6);
  const Status status = fit_context(request, 7, {2048, 16});
  CHECK(status.code == Code::invalid_argument);
  CHECK(std::string(status.message).find("lower max_tokens to 6") != std::string::npos);
}
