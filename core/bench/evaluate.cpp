#include "bench/evaluate.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "bench/score.h"
#include "engine/engine.h"

namespace tessera {
namespace {

struct Item {
  std::size_t task;
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> answer;  // ends with the end-of-answer token
  std::string expected;
};

/// Collects the text of one answer.
class Collector final : public sdk::EventSink {
 public:
  void on_event(const sdk::EventView& event) noexcept override {
    if (event.kind == sdk::EventKind::delta) text += event.text;
    if (event.kind == sdk::EventKind::finished || event.kind == sdk::EventKind::failed ||
        event.kind == sdk::EventKind::cancelled)
      done = true;
  }
  std::string text;
  bool done = false;
};

Status read_items(const std::string& file, const Tokenizer& tokenizer, std::int32_t end_token, std::int32_t limit,
                  std::vector<TaskScore>& tasks, std::vector<Item>& items) {
  std::ifstream in(file);
  if (!in) return fail(Code::not_found, "{}: cannot be read; wanted a file of JSON lines", file);
  std::int64_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    if (line.empty()) continue;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const auto has = [&](const char* key) { return json.is_object() && json.contains(key) && json[key].is_string(); };
    if (!has("task") || !has("prompt") || !has("answer"))
      return fail(Code::invalid_argument, "{}:{}: wanted an object with the texts task, prompt and answer", file,
                  line_number);
    const std::string name = json["task"];
    auto task = std::find_if(tasks.begin(), tasks.end(), [&](const TaskScore& t) { return t.name == name; });
    if (task == tasks.end()) task = tasks.insert(tasks.end(), TaskScore{name});
    if (limit > 0 && task->prompts >= limit) continue;
    ++task->prompts;
    Item item;
    item.task = static_cast<std::size_t>(task - tasks.begin());
    item.expected = json["answer"];
    item.prompt = tokenizer.encode(json["prompt"].get<std::string>(), Tokenizer::Special::become_tokens);
    item.answer = tokenizer.encode(item.expected, Tokenizer::Special::stay_text);
    item.answer.push_back(end_token);
    items.push_back(std::move(item));
  }
  return {};
}

Status cross_entropies(Runner& runner, const std::vector<Item>& items, std::vector<TaskScore>& tasks) {
  Progress progress("cross-entropy", static_cast<std::int64_t>(items.size()));
  for (const Item& item : items) {
    std::vector<std::int32_t> tokens = item.prompt;
    tokens.insert(tokens.end(), item.answer.begin(), item.answer.end());
    const auto first = static_cast<std::int32_t>(item.prompt.size()) - 1;
    TESSERA_TRY(score(
        runner, std::span(tokens).first(tokens.size() - 1), [&](std::int32_t position, std::span<const float> logits) {
          if (position < first) return;
          tasks[item.task].nats += negative_log_likelihood(logits, tokens[static_cast<std::size_t>(position) + 1]);
          ++tasks[item.task].answer_tokens;
        }));
    progress.advance(1);
  }
  return {};
}

Status accuracies(Engine& engine, const std::vector<Item>& items, std::vector<TaskScore>& tasks) {
  Progress progress("answering", static_cast<std::int64_t>(items.size()));
  std::vector<std::unique_ptr<Collector>> collectors;
  for (const Item& item : items) {
    Request request;
    request.prompt = item.prompt;
    request.sampling.temperature = 0;
    const auto room = engine.runner().max_context() - static_cast<std::int32_t>(item.prompt.size());
    request.max_tokens = std::min<std::int32_t>(room, static_cast<std::int32_t>(item.answer.size()) + 8);
    collectors.push_back(std::make_unique<Collector>());
    TESSERA_TRY(engine.submit(collectors.size(), std::move(request), *collectors.back()));
  }
  std::size_t reported = 0;
  while (engine.step()) {
    const auto done = static_cast<std::size_t>(
        std::count_if(collectors.begin(), collectors.end(), [](const auto& c) { return c->done; }));
    progress.advance(static_cast<std::int64_t>(done - reported));
    reported = done;
  }
  for (std::size_t i = 0; i < items.size(); ++i)
    if (collectors[i]->text == items[i].expected) ++tasks[items[i].task].correct;
  return {};
}

}  // namespace

Result<std::vector<TaskScore>> evaluate(const Config& config, Registry& registry, std::span<const std::string> files,
                                        std::int32_t limit) {
  auto tokenizer = Tokenizer::load(config.model.path / "tokenizer.json");
  if (!tokenizer.ok()) return tokenizer.status();
  auto runner = Runner::open(config, registry, {.all_logits = true});
  if (!runner.ok()) return runner.status();
  const DecoderSpec& spec = (*runner)->spec();
  if (spec.eos.empty())
    return fail(Code::invalid_argument, "{}: config.json has no eos_token_id", config.model.path.string());
  const std::int32_t end_token = tokenizer->id_of("<|im_end|>").value_or(spec.eos.front());

  std::vector<TaskScore> tasks;
  std::vector<Item> items;
  for (const std::string& file : files) TESSERA_TRY(read_items(file, *tokenizer, end_token, limit, tasks, items));
  TESSERA_TRY(cross_entropies(**runner, items, tasks));
  SchedulerLimits limits = scheduler_limits(config, **runner);
  limits.max_queue = static_cast<std::int32_t>(items.size());
  Metrics metrics;
  Engine engine(std::move(*runner), limits, *tokenizer, metrics);
  TESSERA_TRY(accuracies(engine, items, tasks));
  TaskScore all{"all"};
  for (const TaskScore& task : tasks) {
    all.prompts += task.prompts;
    all.correct += task.correct;
    all.nats += task.nats;
    all.answer_tokens += task.answer_tokens;
  }
  tasks.push_back(all);
  return tasks;
}

}  // namespace tessera
