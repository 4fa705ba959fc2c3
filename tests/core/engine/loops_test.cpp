// Looped decoding as a whole, where another engine went wrong: docs/looped-defects.md.
#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "bench/simulate.h"
#include "support.h"

using namespace tessera;

namespace {

Request looped_request(const Bench& bench, std::int32_t prompt, std::int32_t max_tokens) {
  Request request = request_of(prompt, max_tokens);
  request.loops = {.max = 4, .sparse_from = bench.engine->runner().sparse_from()};
  return request;
}

Config speculative(Config config) {
  config.speculation.kind = "self";
  return config;
}

void run(Bench& bench) {
  while (bench.engine->step()) {
  }
}

std::unique_ptr<Runner> open(const Config& config, const RunnerOptions& options = {}) {
  auto plugins = registry();
  auto runner = Runner::open(config, plugins, options);
  REQUIRE_MESSAGE(runner.ok(), runner.status().message);
  return std::move(*runner);
}

}  // namespace

TEST_CASE("a longer context limit, and so larger references, changes no bit of a sparse answer") {
  std::vector<Trace> traces;
  for (const std::int32_t context : {64, 512}) {
    Config config = looped_config("", "0.2");
    config.model.max_context = context;
    const auto runner = open(config);
    SimulatedRequest request{.prompt = std::vector<std::int32_t>(45), .sampling = {}, .max_tokens = 8};
    std::iota(request.prompt.begin(), request.prompt.end(), 100);
    request.sampling.temperature = 0;
    request.loops = {.max = 4, .sparse_from = 0};
    const auto simulation = simulate(*runner, std::span(&request, 1), {.limits = scheduler_limits(config, *runner)});
    REQUIRE_MESSAGE(simulation.ok(), simulation.status().message);
    CHECK(simulation->stats.consumed_rows == 14);
    traces.push_back(simulation->traces[0]);
  }
  CHECK(traces[0].tokens == traces[1].tokens);
  REQUIRE(traces[0].logits.size() == traces[1].logits.size());
  CHECK(std::equal(traces[0].logits.begin(), traces[0].logits.end(), traces[1].logits.begin(), [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  }));
}

TEST_CASE("a sparse request may fill the context to its last position, and one token more is refused at once") {
  Config config = speculative(looped_config("", "0.1"));
  config.model.max_context = 64;
  Bench bench(config);
  Recorder whole, longer;
  REQUIRE(bench.engine->submit(1, looped_request(bench, 40, 24), whole).ok());
  CHECK(bench.engine->submit(2, looped_request(bench, 40, 25), longer).code == Code::invalid_argument);
  run(bench);
  CHECK(whole.choices.at(0).tokens.size() == 24);
  CHECK(whole.last == sdk::EventKind::finished);
  CHECK(bench.engine->stats().consumed_rows > 0);
  CHECK(longer.terminals == 0);
}

TEST_CASE("a pool that does not fit beside weights and references is refused at load, with the numbers") {
  Config config = looped_config("", "0.1");
  config.cache.pages = std::int64_t{1} << 30;
  auto plugins = registry();
  const auto runner = Runner::open(config, plugins, {});
  REQUIRE_FALSE(runner.ok());
  const std::string message = runner.status().message;
  CHECK_MESSAGE(message.find("cache.pages is 1073741824") != std::string::npos, message);
  CHECK_MESSAGE(message.find("pages fit in 0.85 of the free memory") != std::string::npos, message);
}

TEST_CASE("a step that fails within a sparse round gives its slots back, and the first reason is the one told") {
  Bench bench(speculative(looped_config("fails_in_run", "0.1")));
  Recorder failing, beside, later;
  REQUIRE(bench.engine->submit(1, looped_request(bench, 36, 20), failing).ok());
  REQUIRE(bench.engine->submit(2, looped_request(bench, 8, 30), beside).ok());
  std::int32_t most = 0;
  while (bench.engine->step()) most = std::max(most, bench.engine->references().outstanding());
  CHECK(most > 1);
  for (const Recorder* recorder : {&failing, &beside}) {  // of one step, whose KV may be written half
    CHECK(recorder->terminals == 1);
    CHECK(recorder->late == 0);
    CHECK(recorder->last == sdk::EventKind::failed);
    CHECK(recorder->reason == "fails_in_run: position 40 is too much");
  }
  CHECK(bench.engine->references().outstanding() == 0);
  CHECK(bench.engine->pages().in_use() == 0);
  REQUIRE(bench.engine->submit(3, looped_request(bench, 8, 6), later).ok());
  run(bench);
  CHECK(later.last == sdk::EventKind::finished);
}

TEST_CASE("a ticket that is used again after a cancel is another request, and neither gets anything of the other") {
  Bench bench(speculative(looped_config("", "0.1")));
  Recorder wanted, first, second;
  Request other = looped_request(bench, 20, 12);
  std::reverse(other.prompt.begin(), other.prompt.end());
  other.top_logprobs = 0;
  REQUIRE(bench.engine->submit(1, other, wanted).ok());
  run(bench);
  for (int steps = 1; steps < 12; ++steps) {  // wherever in its rounds the first one is
    CAPTURE(steps);
    first = {}, second = {};
    REQUIRE(bench.engine->submit(7, looped_request(bench, 20, 12), first).ok());
    for (int step = 0; step < steps; ++step) bench.engine->step();
    bench.engine->cancel(7);
    const std::size_t before = first.choices[0].tokens.size();
    REQUIRE(bench.engine->submit(7, other, second).ok());
    run(bench);
    CHECK(first.last == sdk::EventKind::cancelled);
    CHECK(first.late == 0);
    CHECK(first.choices[0].tokens.size() == before);
    CHECK(second.choices == wanted.choices);
    CHECK(bench.engine->references().outstanding() == 0);
  }
}

TEST_CASE("of the tokens that one step gives a request none follows the one that ends it") {
  Bench bench(speculative(looped_config("", "0.5")));
  Recorder whole;
  REQUIRE(bench.engine->submit(1, looped_request(bench, 20, 24), whole).ok());
  run(bench);
  const std::string text = whole.text;
  REQUIRE(bench.engine->stats().round_tokens > bench.engine->stats().rounds);  // steps gave several tokens
  REQUIRE(text.size() > 8);
  for (std::size_t at = 1; at + 2 < text.size(); ++at) {  // an end at every place of a round
    CAPTURE(at);
    Request request = looped_request(bench, 20, 24);
    request.stops = {text.substr(at, 2)};
    Recorder stopped;
    REQUIRE(bench.engine->submit(2, std::move(request), stopped).ok());
    run(bench);
    CHECK(stopped.finish == sdk::FinishReason::stop);
    CHECK(stopped.late == 0);
    CHECK(stopped.terminals == 1);
    CHECK(text.starts_with(stopped.text));
    CHECK(stopped.text.find(text.substr(at, 2)) == std::string::npos);
  }
}

TEST_CASE("metrics tell how much of the attention the selections of each layer kept") {
  Bench bench(looped_config("", "0.25"));
  CHECK(bench.metrics.text().find("tessera_sparse_retained_mass{") == std::string::npos);
  Recorder recorder;
  REQUIRE(bench.engine->submit(1, looped_request(bench, 40, 4), recorder).ok());
  run(bench);
  const std::string text = bench.metrics.text();
  for (std::int32_t layer = 0; layer < bench.engine->runner().spec().layers; ++layer) {
    double values[2] = {};
    for (int i = 0; i < 2; ++i) {
      const std::string name = "tessera_sparse_retained_mass{layer=\"" + std::to_string(layer) + "\",statistic=\"" +
                               (i == 0 ? "min" : "mean") + "\"} ";
      const std::size_t at = text.find(name);
      REQUIRE_MESSAGE(at != std::string::npos, name);
      values[i] = std::stod(text.substr(at + name.size()));
    }
    CHECK(values[0] > 0.25);  // the best quarter holds more than a quarter
    CHECK(values[0] < values[1]);
    CHECK(values[1] <= 1.0);
  }
}

TEST_CASE("one changed bit of the weights is another fingerprint, and refused where the model has its hashes") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(TESSERA_BINARY_DIR) / "loops_test_model";
  fs::remove_all(folder);
  fs::copy(TESSERA_SOURCE_DIR "/models/tessera-looped", folder);
  REQUIRE(fs::remove(folder / "SHA256SUMS"));
  Config config = looped_config("", "0.1");
  config.model.path = folder;
  const std::string before = open(config)->fingerprint();
  {
    std::fstream file(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(5'000'000);
    const int byte = file.get();
    file.seekp(5'000'000);
    file.put(static_cast<char>(byte ^ 1));
    REQUIRE(file.good());
  }
  CHECK(open(config)->fingerprint() != before);
  std::ofstream(folder / "SHA256SUMS") << std::string(64, '0') << "  model.safetensors\n";
  auto plugins = registry();
  const auto refused = Runner::open(config, plugins, {});
  REQUIRE_FALSE(refused.ok());
  CHECK(std::string(refused.status().message).find("model.safetensors: its SHA-256 is") != std::string::npos);
  fs::remove_all(folder);
}

TEST_CASE("on text the model answers with more than one token, and what it attends to is no even spread") {
  std::ifstream file(TESSERA_SOURCE_DIR "/tests/golden/tessera-looped.json");
  const auto golden = nlohmann::json::parse(file);
  const Config config = looped_config("", "0.1");
  const auto runner = open(config, {.masses = true});
  SimulatedRequest request{
      .prompt = golden["tokens"].get<std::vector<std::int32_t>>(), .sampling = {}, .max_tokens = 6};
  request.sampling.temperature = 0;
  request.loops = {.max = 4, .sparse_from = 0};
  const auto simulation = simulate(*runner, std::span(&request, 1), {.limits = scheduler_limits(config, *runner)});
  REQUIRE_MESSAGE(simulation.ok(), simulation.status().message);
  const std::vector<std::int32_t>& tokens = simulation->traces[0].tokens;
  CHECK(std::set<std::int32_t>(tokens.begin(), tokens.end()).size() > 2);
  const std::vector<float>& masses = simulation->masses;
  REQUIRE(masses.size() > 10);
  const float mean = std::accumulate(masses.begin(), masses.end(), 0.0f) / static_cast<float>(masses.size());
  MESSAGE("mean mass ", mean, " of ", masses.size());
  CHECK(mean > 0.3f);  // an even spread would give about 0.1
  CHECK(mean < 0.99f);
}
