#include "bench/evaluate.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "bench/score.h"
#include "text/tokenizer.h"

using namespace tessera;

namespace {

const std::string kAsked =
    R"("prompt": "<|im_start|>user\nTell me a story about a fox and a kite.<|im_end|>\n<|im_start|>assistant\n", )"
    R"("answer": "Once upon a time, there was a fox.")";
const std::string kText = "Once upon a time, there was a proud calf named Grace.";

Config embedded() {
  Config config;
  config.model.path = std::string(TESSERA_SOURCE_DIR) + "/models/tessera-dense";
  config.cache.pages = 64;
  config.scheduler.max_batch = 4;
  return config;
}

Result<std::vector<TaskScore>> evaluated(const std::string& lines) {
  const std::string file =
      std::filesystem::temp_directory_path() / ("tessera-evaluate-" + std::to_string(getpid()) + ".jsonl");
  std::ofstream(file) << lines;
  Registry registry({std::filesystem::path(TESSERA_BINARY_DIR) / "plugins"});
  const std::vector<std::string> files{file};
  auto tasks = evaluate(embedded(), registry, files, {});
  std::filesystem::remove(file);
  return tasks;
}

}  // namespace

TEST_CASE("of a raw text every token but the first is scored, and nothing is asked") {
  const auto tasks = evaluated(R"({"task": "raw", "text": ")" + kText + "\"}\n");
  REQUIRE(tasks.ok());
  const Config config = embedded();
  const auto tokenizer = Tokenizer::load(config.model.path / "tokenizer.json");
  REQUIRE(tokenizer.ok());
  const auto tokens = tokenizer->encode(kText, Tokenizer::Special::stay_text);
  Registry registry({std::filesystem::path(TESSERA_BINARY_DIR) / "plugins"});
  auto runner = Runner::open(config, registry, {.all_logits = true});
  REQUIRE(runner.ok());
  double nats = 0;
  const auto add = [&](std::int32_t position, std::span<const float> logits) {
    const auto next = static_cast<std::size_t>(position) + 1;
    if (next < tokens.size()) nats += negative_log_likelihood(logits, tokens[next]);
  };
  REQUIRE(score(**runner, tokens, add).ok());
  for (const TaskScore& task : *tasks) {  // the task, and all
    CHECK(task.prompts == 1);
    CHECK(task.answered == 0);
    CHECK(task.answer_tokens == std::ssize(tokens) - 1);
    CHECK(task.nats == doctest::Approx(nats).epsilon(1e-9));
  }
}

TEST_CASE("an answer asked for by its words is right when it ends in time and holds them all") {
  const auto line = [](const std::string& task, const std::string& rest) {
    return R"({"task": ")" + task + "\", " + kAsked + rest + "}\n";
  };
  const auto tasks = evaluated(line("held", R"(, "words": ["fox", "kite"], "max_tokens": 220)") +
                               line("missing", R"(, "words": ["fox", "zebra"], "max_tokens": 220)") +
                               line("cut off", R"(, "words": ["fox"], "max_tokens": 40)") + line("exact", ""));
  REQUIRE(tasks.ok());
  REQUIRE(tasks->size() == 5);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK((*tasks)[i].answered == 1);
    CHECK_MESSAGE((*tasks)[i].correct == (i == 0 ? 1 : 0), (*tasks)[i].name);
  }
}

TEST_CASE("lines of neither form are refused by number") {
  for (const std::string line :
       {R"({"task": "a"})", R"({"task": "a", "text": 3})", R"({"task": "a", "text": ""})",
        R"({"task": "a", "text": "b c", "answer": "d"})", R"({"task": "a", "prompt": "b", "answer": "c", "words": []})",
        R"({"task": "a", "prompt": "b", "answer": "c", "words": ["d"]})",
        R"({"task": "a", "prompt": "b", "answer": "c", "words": [1], "max_tokens": 3})"}) {
    const auto tasks = evaluated("\n" + line + "\n");
    REQUIRE(!tasks.ok());
    CHECK_MESSAGE(std::string(tasks.status().message).find(".jsonl:2: ") != std::string::npos, line);
  }
}
