// An engine with an embedded model, and a sink that remembers.
#pragma once
#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace tessera {

inline const std::string kModel = std::string(TESSERA_SOURCE_DIR) + "/models/tessera-dense";

inline Config config_with(const std::string& attention) {
  Config config;
  config.model.path = kModel;
  config.cache.pages = 64;
  if (!attention.empty())
    config.attention = {.name = attention,
                        .path = std::string(TESSERA_BINARY_DIR) + "/bad_plugins/" + attention + ".so",
                        .options = {},
                        .where = {}};
  return config;
}

inline Registry registry() { return Registry({std::filesystem::path(TESSERA_BINARY_DIR) / "plugins"}); }

struct Recorder final : sdk::EventSink {
  void on_event(const sdk::EventView& event) noexcept override {
    late += terminals > 0 || (event.kind == sdk::EventKind::delta && done[event.choice]) ? 1 : 0;
    if (event.kind == sdk::EventKind::delta) text += event.text;
    Choice& choice = choices[event.choice];
    choice.text += event.kind == sdk::EventKind::delta ? event.text : "";
    for (const sdk::TokenView& token : event.tokens) {
      choice.tokens.push_back(token.chosen.token);
      choice.logprobs.push_back(token.chosen.logprob);
    }
    if (event.kind == sdk::EventKind::choice_done) finish = event.finish, done[event.choice] = true;
    const bool terminal = event.kind == sdk::EventKind::finished || event.kind == sdk::EventKind::failed ||
                          event.kind == sdk::EventKind::cancelled;
    if (!terminal) return;
    ++terminals;
    last = event.kind;
    if (event.status != nullptr) reason = event.status->message;
  }
  std::string text, reason;
  struct Choice {
    std::string text;
    std::vector<std::int32_t> tokens;
    std::vector<float> logprobs;
    bool operator==(const Choice&) const = default;
  };
  std::map<std::int32_t, Choice> choices;
  sdk::FinishReason finish = sdk::FinishReason::none;
  sdk::EventKind last = sdk::EventKind::started;
  int terminals = 0;
  std::map<std::int32_t, bool> done;
  int late = 0;  // events after the terminal one, or of a choice after it was complete
};

inline Request request_of(std::int32_t prompt, std::int32_t max_tokens) {
  Request request;
  for (std::int32_t i = 0; i < prompt; ++i) request.prompt.push_back(100 + i);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

/// The embedded looped model with sparse decoding of its later loops.
inline Config looped_config(const std::string& attention, const std::string& retention) {
  Config config = config_with(attention);
  config.model.path = std::string(TESSERA_SOURCE_DIR) + "/models/tessera-looped";
  config.cache.pages = 256;
  config.sparse_decode.plugin = {.name = "loop_reference", .path = {}, .options = {}, .where = {"test", 0, 0}};
  config.sparse_decode.plugin.options.push_back({"retention", retention, {"test", 0, 0}});
  return config;
}

struct Bench {
  explicit Bench(const std::string& attention) : Bench(config_with(attention)) {}
  explicit Bench(const Config& config) {
    auto plugins = registry();
    auto runner = Runner::open(config, plugins, {});
    REQUIRE_MESSAGE(runner.ok(), runner.status().message);
    const SchedulerLimits limits = scheduler_limits(config, **runner);
    auto loaded = Tokenizer::load(kModel + "/tokenizer.json");
    REQUIRE(loaded.ok());
    tokenizer.emplace(std::move(*loaded));
    engine.emplace(std::move(*runner), limits, acceptance_of(config), *tokenizer, metrics);
  }
  bool metric(const std::string& line) const { return metrics.text().find(line + "\n") != std::string::npos; }

  std::optional<Tokenizer> tokenizer;
  Metrics metrics;
  std::optional<Engine> engine;
};

}  // namespace tessera
