#include "config/config.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/random.h"

namespace tessera {
namespace {

using Environment = std::map<std::string, std::string>;

Config good(std::string_view text, const Environment& environment = {}, const std::vector<Override>& overrides = {}) {
  auto config = parse_config(text, "test.yaml", environment, overrides);
  REQUIRE_MESSAGE(config.ok(), config.status().message);
  return *config;
}

std::string error(std::string_view text, const Environment& environment = {},
                  const std::vector<Override>& overrides = {}) {
  auto config = parse_config(text, "test.yaml", environment, overrides);
  return config.ok() ? "accepted" : config.status().message;
}

TEST_CASE("nothing given is the defaults") {
  const Config config = good("");
  CHECK(config.model.path == "models/tessera-dense");
  CHECK(config.backend.name == "cpu");
  CHECK(config.backend.where.text() == "built-in defaults");
  CHECK(config.cache.pages == 0);
  CHECK(config.scheduler.max_batch == 16);
  CHECK(config.attention.name == "attention_exact");
  REQUIRE(config.protocols.size() == 1);
  CHECK(config.protocols[0].name == "openai");
  CHECK(config.server.port == 8080);
  CHECK(to_yaml(good("model:\ncache: {}\nsparse_decode:\nspeculation: {}\nserver: { tls: {} }\n")) == to_yaml(config));
}

TEST_CASE("every key of a file is read") {
  const Config config = good(R"(
model: { path: m, profile: f32, max_context: 2048, name: tiny }
backend: { name: cuda, options: { device: 1, fast: true } }
cache: { pages: 4096, memory_fraction: 0.5, prefix_cache: false }
scheduler: { max_batch: 3, step_tokens: 30, chunk_cap: 5, max_queue: 7 }
attention: { path: out/attention_exact.cuda.so, variant: wide, options: { split: "2" } }
protocols:
  - { name: openai, options: { prefix: /v1 } }
  - path: x/anthropic.so
server: { listen: "[::1]:0", api_keys: [a, "1"], max_connections: 9, max_body_bytes: 2048, drain_seconds: 0 }
plugins: { directories: [p, q] }
log: { level: debug }
)");
  CHECK(config.model.path == "m");
  CHECK(config.model.max_context == 2048);
  CHECK(config.model.name == "tiny");
  CHECK(config.backend.name == "cuda");
  REQUIRE(config.backend.options.size() == 2);
  CHECK(config.backend.options[0].key == "device");
  CHECK(config.backend.options[0].value == "1");
  CHECK(config.backend.options[0].where.text() == "test.yaml:3:43");
  CHECK(config.cache.pages == 4096);
  CHECK(config.cache.memory_fraction == 0.5);
  CHECK_FALSE(config.cache.prefix_cache);
  CHECK(config.scheduler.max_batch == 3);
  CHECK(config.scheduler.step_tokens == 30);
  CHECK(config.scheduler.chunk_cap == 5);
  CHECK(config.scheduler.max_queue == 7);
  CHECK(config.attention.name == "attention_exact");
  CHECK(config.attention.path == "out/attention_exact.cuda.so");
  REQUIRE(config.attention.options.size() == 2);
  CHECK(config.attention.options[0].key == "variant");
  CHECK(config.attention.options[0].value == "wide");
  REQUIRE(config.protocols.size() == 2);
  CHECK(config.protocols[0].options[0].value == "/v1");
  CHECK(config.protocols[1].name == "anthropic");
  CHECK(config.server.host == "::1");
  CHECK(config.server.port == 0);
  CHECK(config.server.api_keys == std::vector<std::string>{"a", "1"});
  CHECK(config.server.max_connections == 9);
  CHECK(config.server.max_body_bytes == 2048);
  CHECK(config.server.drain_seconds == 0);
  CHECK(config.plugin_directories == std::vector<std::filesystem::path>{"p", "q"});
  CHECK(config.log_level == "debug");
  const std::string yaml = to_yaml(config);
  CHECK(to_yaml(good(yaml)) == yaml);
}

TEST_CASE("defaults yield to the file, the file to the environment, the environment to overrides") {
  const std::string file = "scheduler: { max_batch: 2 }\n";
  const Environment environment{
      {"TESSERA_SCHEDULER__MAX_BATCH", "3"}, {"TESSERA_PLUGIN_PATH", "/x"}, {"TESSERA_OTHER", ""}};
  CHECK(good(file).scheduler.max_batch == 2);
  CHECK(good(file, environment).scheduler.max_batch == 3);
  CHECK(good(file, environment, {{"scheduler.max_batch=4", "--set"}, {"scheduler.max_batch=5", "--set"}})
            .scheduler.max_batch == 5);
}

TEST_CASE("overrides reach plugin options, ports, lists and sections") {
  const Config config =
      good("backend: { options: { threads: 1, other: 2 } }\n", {{"TESSERA_ATTENTION__OPTIONS__X", "y"}},
           {{"backend.options.threads=2", "--set"},
            {"attention.variant=a", "--set"},
            {"server.host=::1", "--host"},
            {"server.port=99", "--port"},
            {"server.api_keys=key", "--api-key"},
            {"protocols=[{name: web}]", "--set"},
            {"model.name=", "--set"}});
  REQUIRE(config.backend.options.size() == 2);
  CHECK(config.backend.options[0].value == "2");
  CHECK(config.backend.options[0].where.text() == "--set");
  REQUIRE(config.attention.options.size() == 2);
  CHECK(config.attention.options[0].where.text() == "TESSERA_ATTENTION__OPTIONS__X");
  CHECK(config.attention.options[1].key == "variant");
  CHECK(config.server.host == "::1");
  CHECK(config.server.port == 99);
  CHECK(config.server.api_keys == std::vector<std::string>{"key"});
  CHECK(config.protocols[0].name == "web");
}

TEST_CASE("naming another plugin forgets the options of the one before, and keeps those given with it or later") {
  const std::string file = "backend: { name: cpu, options: { threads: 2 } }\n";
  CHECK(good(file, {}, {{"backend.name=cpu", "--device"}}).backend.options.size() == 1);
  const Config config = good(file, {}, {{"backend.name=cuda", "--device"}, {"backend.options.device=1", "--set"}});
  CHECK(config.backend.name == "cuda");
  REQUIRE(config.backend.options.size() == 1);
  CHECK(config.backend.options[0].key == "device");
  CHECK(good(file, {}, {{"backend={options: {device: 1}, name: cuda}", "--set"}}).backend.options.size() == 1);
}

TEST_CASE("a mistake in a file is one sentence with file, line and column") {
  CHECK(error("cache:\n  pagse: 3\n") == "test.yaml:2:3: unknown key 'cache.pagse'; did you mean 'pages'?");
  CHECK(error("cahce: {}\n") == "test.yaml:1:1: unknown key 'cahce'; did you mean 'cache'?");
  CHECK(error("plugins: { zzzzzzzzzz: 1 }") ==
        "test.yaml:1:12: unknown key 'plugins.zzzzzzzzzz'; known here are directories");
  CHECK(error("server: { port: 1 }")
            .starts_with("test.yaml:1:11: unknown key 'server.port'; known here are listen, api_keys"));
  CHECK(error("attention: { varient: x }") ==
        "test.yaml:1:14: unknown key 'attention.varient'; did you mean 'variant'?");
  CHECK(error("backend: { variant: x }").find("unknown key 'backend.variant'") != std::string::npos);
  CHECK(error("cache: { pages: many }") ==
        "test.yaml:1:17: cache.pages is set to 'many'; wanted auto or a whole number from 1 to 2147483647");
  CHECK(error("scheduler: { max_batch: 0 }") ==
        "test.yaml:1:25: scheduler.max_batch is set to '0'; wanted a whole number from 1 to 4096");
  CHECK(error("scheduler: { max_batch: '4' }") ==
        "test.yaml:1:25: scheduler.max_batch is the text '4'; wanted a whole number from 1 to 4096");
  CHECK(error("scheduler: { max_batch: 99999999999999999999 }").find("from 1 to 4096") != std::string::npos);
  CHECK(error("scheduler: { max_batch: [1] }").find("is a list; wanted a whole number") != std::string::npos);
  CHECK(error("scheduler:\n  max_batch:\n") ==
        "test.yaml:2:3: scheduler.max_batch is empty; wanted a whole number from 1 to 4096");
  CHECK(error("cache: { memory_fraction: 1.5 }").find("wanted a number from 0.01 to 1") != std::string::npos);
  CHECK(error("cache: { memory_fraction: nan }").find("wanted a number from 0.01 to 1") != std::string::npos);
  CHECK(error("cache: { prefix_cache: yes }") ==
        "test.yaml:1:24: cache.prefix_cache is set to 'yes'; wanted true or false");
  CHECK(error("cache: 3") == "test.yaml:1:8: cache is set to '3'; wanted a section of 'key: value' lines");
  CHECK(error("- a") == "test.yaml:1:1: the configuration is a list; wanted a section of 'key: value' lines");
  CHECK(error("cache: { pages: 1, pages: 2 }") == "test.yaml:1:20: cache.pages is given twice; keep one of the two");
  CHECK(error("server: { listen: here }").find("wanted HOST:PORT, such as 127.0.0.1:8080") != std::string::npos);
  CHECK(error("server: { listen: 'a:70000' }").find("wanted HOST:PORT") != std::string::npos);
  CHECK(error("server: { listen: '::1:80' }").find("wanted HOST:PORT") != std::string::npos);
  CHECK(error("server: { listen: ']:80' }") != "accepted");
  CHECK(error("server: { listen: '[:80' }") != "accepted");
  CHECK(error("log: { level: wran }") ==
        "test.yaml:1:15: log.level is set to 'wran'; wanted one of debug, info, warn, error (did you mean warn?)");
  CHECK(error("backend: { name: ../cpu }").find("wanted a plugin name of a-z, 0-9 and _") != std::string::npos);
  CHECK(error("backend: { options: { a: [1] } }").find("backend.options.a is a list; wanted one value") !=
        std::string::npos);
  CHECK(error("protocols: openai").find("wanted a list of adapters") != std::string::npos);
  CHECK(error("protocols: []").find("wanted at least one adapter") != std::string::npos);
  CHECK(error("protocols: [{}]").find("wanted an adapter with a name") != std::string::npos);
  CHECK(error("protocols: [{name: a}, {name: a}]") ==
        "test.yaml:1:31: protocol 'a' is listed twice; keep one of the two");
  CHECK(error("a: 1\n---\nb: 2\n").find("goes on after its first YAML document") != std::string::npos);
}

TEST_CASE("what is not in this build is refused by name") {
  CHECK(error("model: { profile: int8 }") == "test.yaml:1:19: model.profile 'int8' is not in this build yet; use f32");
  CHECK(error("model: { profile: bf16 }") == "test.yaml:1:19: model.profile 'bf16' is not in this build yet; use f32");
  CHECK(error("model: { profile: f23 }").find("wanted f32 (did you mean f32?)") != std::string::npos);
  CHECK(error("speculation: { kind: self, rounds_in_flight: 3 }").find("speculation.rounds_in_flight") !=
        std::string::npos);
  CHECK(error("speculation: { kind: slef }").find("did you mean self?") != std::string::npos);
  CHECK(error("server: { tls: { cert: x } }").find("server.tls is not in this build yet") != std::string::npos);
}

TEST_CASE("sparse decoding is a plugin with one key of the engine's own") {
  const Config config = good("sparse_decode: { name: loop_reference, crossover: 64, options: { retention: 0.1 } }");
  CHECK(config.sparse_decode.plugin.name == "loop_reference");
  CHECK(config.sparse_decode.plugin.option("retention", "") == "0.1");
  CHECK(config.sparse_decode.crossover == 64);
  CHECK(to_yaml(good(to_yaml(config))) == to_yaml(config));
  CHECK(good("").sparse_decode.plugin.name.empty());
  CHECK(error("sparse_decode: { name: a, crosover: 3 }").find("did you mean 'crossover'?") != std::string::npos);
  CHECK(error("sparse_decode: { name: a, crossover: 0 }").find("wanted a whole number from 1 to 16777216") !=
        std::string::npos);
}

TEST_CASE("speculation accepts exactly unless rejection is asked for, and says so in the resolved configuration") {
  CHECK(good("").speculation.acceptance == "exact");
  const Config config =
      good("speculation: { kind: self, draft_tokens: 5, draft_loops: 1, rounds_in_flight: 2, acceptance: rejection }");
  CHECK(config.speculation.kind == "self");
  CHECK(config.speculation.draft_tokens == 5);
  CHECK(config.speculation.draft_loops == 1);
  CHECK(config.speculation.rounds_in_flight == 2);
  CHECK(config.speculation.acceptance == "rejection");
  CHECK(to_yaml(config).find("acceptance: \"rejection\"") != std::string::npos);
  CHECK(to_yaml(good(to_yaml(config))) == to_yaml(config));
  CHECK(good("", {}, {{"speculation.acceptance=rejection", "--set"}}).speculation.acceptance == "rejection");
  CHECK(error("speculation: { acceptance: rejecton }") ==
        "test.yaml:1:28: speculation.acceptance is set to 'rejecton'; wanted one of exact, rejection (did you mean "
        "rejection?)");
  CHECK(error("speculation: { acceptance: [exact] }").find("speculation.acceptance is a list; wanted") !=
        std::string::npos);
  CHECK(error("speculation: { acceptence: exact }") ==
        "test.yaml:1:16: unknown key 'speculation.acceptence'; did you mean 'acceptance'?");
}

TEST_CASE("broken YAML is refused where it breaks") {
  CHECK(error("cache: { pages: 1\n").starts_with("test.yaml:2:1: this is no YAML ("));
  CHECK(error("cache:\n\t- x\n").starts_with("test.yaml:2:"));
  CHECK(error("a: *unknown").starts_with("test.yaml:1:"));
}

TEST_CASE("a mistake in an override or a variable names it") {
  CHECK(error("", {}, {{"cache.pages", "--set"}}) ==
        "--set: 'cache.pages' has no '='; wanted section.key=value, such as cache.pages=4096");
  CHECK(error("", {}, {{"cache.pagse=3", "--set"}}) == "--set: unknown key 'cache.pagse'; did you mean 'pages'?");
  CHECK(error("", {}, {{"cache..pages=3", "--set"}}).find("a key is empty") != std::string::npos);
  CHECK(error("", {}, {{"=3", "--set"}}).find("a key is empty") != std::string::npos);
  CHECK(error("", {}, {{"model.name=[", "--set"}}).starts_with("--set: this is no YAML ("));
  CHECK(error("", {{"TESSERA_CACHE__PAGES", "x"}})
            .starts_with("TESSERA_CACHE__PAGES: cache.pages is set to 'x'; wanted"));
}

TEST_CASE("an empty API key and the one that is shown instead of keys are refused") {
  for (const char* key : {"''", "(hidden)"})
    CHECK(error(fmt::format("server: {{ api_keys: [{}] }}", key)).find("test.yaml:1:") == 0);
}

TEST_CASE("a step must have room for every running request") {
  CHECK(error("scheduler: { max_batch: 32, step_tokens: 16 }")
            .starts_with("test.yaml:1:12: scheduler.step_tokens is 16 but scheduler.max_batch is 32"));
}

TEST_CASE("a missing or huge file is refused") {
  auto missing = load_config("no/such.yaml", {}, {});
  REQUIRE_FALSE(missing.ok());
  CHECK(std::string(missing.status().message).starts_with("no/such.yaml: cannot be read"));
  CHECK_FALSE(load_config(std::filesystem::temp_directory_path(), {}, {}).ok());
  CHECK(error(std::string(2 << 20, '#')).find("wanted a configuration of at most") != std::string::npos);
}

TEST_CASE("every shipped configuration loads, has a header comment and reads back") {
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    INFO(entry.path().string());
    auto config = load_config(entry.path(), {}, {});
    REQUIRE_MESSAGE(config.ok(), config.status().message);
    std::ifstream stream(entry.path());
    CHECK(stream.get() == '#');
    CHECK(to_yaml(good(to_yaml(*config))) == to_yaml(*config));
    seen.insert(entry.path().filename().string());
  }
  CHECK(seen.contains("serve.yaml"));
  CHECK(seen.contains("minimal.yaml"));
  CHECK(seen.contains("small-memory.yaml"));
  const auto serve = load_config(TESSERA_SOURCE_DIR "/configs/serve.yaml", {}, {});
  REQUIRE(serve.ok());
  CHECK(to_yaml(*serve) == to_yaml(Config{}));
}

TEST_CASE("any text is read or refused with a sentence") {
  constexpr std::uint64_t kSeed = 20260;
  Random random(kSeed);
  INFO("seed " << kSeed);
  const std::string pieces[] = {"cache",  "pages", ":",  ": ", "{",    "}", "[",  "]",      "\n",    "  ",
                                "- ",     "'",     "\"", "1",  "auto", "#", "&a", "*a",     "model", "server",
                                "listen", ",",     "\t", "!",  "?",    "|", ">",  "options"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::uint32_t i = 0, count = 1 + random.below(24); i < count; ++i)
      text += pieces[random.below(static_cast<std::uint32_t>(std::size(pieces)))];
    auto config = parse_config(text, "test.yaml", {}, {});
    if (config.ok())
      CHECK(to_yaml(good(to_yaml(*config))) == to_yaml(*config));
    else
      CHECK_MESSAGE(std::string(config.status().message).starts_with("test.yaml:"), text);
  }
}

}  // namespace
}  // namespace tessera
