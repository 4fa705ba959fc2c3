#include "bench/evaluate.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "bench/score.h"
#include "bench/simulate.h"
#include "engine/engine.h"
#include "engine/validate.h"

namespace tessera {
namespace {

struct Item {
  std::size_t task;
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> answer;  // ends with the end-of-answer token; of a raw text, all but its first token
  std::string expected;
  std::vector<std::string> words;  // instead of `expected`
  std::int32_t max_tokens = 0;
  bool raw = false;  // nothing is asked
};

/// Collects the text of one answer.
class Collector final : public sdk::EventSink {
 public:
  void on_event(const sdk::EventView& event) noexcept override {
    if (event.kind == sdk::EventKind::delta) text += event.text;
    if (event.kind == sdk::EventKind::choice_done) stopped = event.finish == sdk::FinishReason::stop;
    if (event.kind == sdk::EventKind::finished || event.kind == sdk::EventKind::failed ||
        event.kind == sdk::EventKind::cancelled)
      done = true;
  }
  bool answers(const Item& item) const {
    if (item.words.empty()) return text == item.expected;
    return stopped && std::all_of(item.words.begin(), item.words.end(),
                                  [&](const std::string& word) { return text.find(word) != std::string::npos; });
  }
  std::string text;
  bool done = false;
  bool stopped = false;
};

bool has_text(const nlohmann::json& json, const char* key) { return json.contains(key) && json[key].is_string(); }

bool well_formed(const nlohmann::json& json) {
  if (!json.is_object() || !has_text(json, "task")) return false;
  if (json.contains("text")) return has_text(json, "text") && !json.contains("prompt") && !json.contains("answer");
  if (!has_text(json, "prompt") || !has_text(json, "answer")) return false;
  if (!json.contains("words")) return !json.contains("max_tokens");
  return json["words"].is_array() && !json["words"].empty() && json.contains("max_tokens") &&
         json["max_tokens"].is_number_unsigned() &&
         std::all_of(json["words"].begin(), json["words"].end(), [](const auto& word) { return word.is_string(); });
}

Item item_of(const nlohmann::json& json, const Tokenizer& tokenizer, std::int32_t end_token) {
  Item item;
  if (json.contains("text")) {
    item.raw = true;
    item.answer = tokenizer.encode(json["text"].get<std::string>(), Tokenizer::Special::stay_text);
    if (item.answer.empty()) return item;
    item.prompt = {item.answer.front()};
    item.answer.erase(item.answer.begin());
    return item;
  }
  item.expected = json["answer"];
  item.prompt = tokenizer.encode(json["prompt"].get<std::string>(), Tokenizer::Special::become_tokens);
  item.answer = tokenizer.encode(item.expected, Tokenizer::Special::stay_text);
  item.answer.push_back(end_token);
  item.max_tokens = static_cast<std::int32_t>(item.answer.size()) + 8;
  if (json.contains("words")) {
    item.words = json["words"].get<std::vector<std::string>>();
    item.max_tokens = json["max_tokens"];
  }
  return item;
}

Status read_items(const std::string& file, const Tokenizer& tokenizer, std::int32_t end_token, std::int32_t limit,
                  std::vector<TaskScore>& tasks, std::vector<Item>& items) {
  std::ifstream in(file);
  if (!in) return fail(Code::not_found, "{}: cannot be read; wanted a file of JSON lines", file);
  std::int64_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    if (line.empty()) continue;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!well_formed(json))
      return fail(Code::invalid_argument,
                  "{}:{}: wanted an object with the texts task, prompt and answer (and words, a list of texts, with "
                  "max_tokens, if the answer is free), or with task and text",
                  file, line_number);
    const std::string name = json["task"];
    auto task = std::find_if(tasks.begin(), tasks.end(), [&](const TaskScore& t) { return t.name == name; });
    if (task == tasks.end()) task = tasks.insert(tasks.end(), TaskScore{name});
    if (limit > 0 && task->prompts >= limit) continue;
    ++task->prompts;
    Item item = item_of(json, tokenizer, end_token);
    if (item.answer.empty())
      return fail(Code::invalid_argument, "{}:{}: a text of one token or none; nothing of it can be predicted", file,
                  line_number);
    item.task = static_cast<std::size_t>(task - tasks.begin());
    task->answered += item.raw ? 0 : 1;
    items.push_back(std::move(item));
  }
  return {};
}

void add_nats(const Item& item, std::size_t index, std::span<const float> logits, TaskScore& task) {
  task.nats += negative_log_likelihood(logits, item.answer[index]);
  ++task.answer_tokens;
}

/// All positions of a text run the same loops: whole texts at once.
Status prefilled_cross_entropies(Runner& runner, const std::vector<Item>& items, std::int32_t loops,
                                 std::vector<TaskScore>& tasks) {
  Progress progress("cross-entropy", static_cast<std::int64_t>(items.size()));
  for (const Item& item : items) {
    std::vector<std::int32_t> tokens = item.prompt;
    tokens.insert(tokens.end(), item.answer.begin(), item.answer.end());
    const auto first = static_cast<std::int32_t>(item.prompt.size()) - 1;
    const auto visit = [&](std::int32_t position, std::span<const float> logits) {
      if (position >= first) add_nats(item, static_cast<std::size_t>(position - first), logits, tasks[item.task]);
    };
    TESSERA_TRY(score(runner, std::span(tokens).first(tokens.size() - 1), visit, loops));
    progress.advance(1);
  }
  return {};
}

/// Answers decoded token by token, each forced to be the expected one.
Status decoded_cross_entropies(Runner& runner, const std::vector<Item>& items, const SchedulerLimits& limits,
                               const LoopParams& loops, std::vector<TaskScore>& tasks) {
  Progress progress("cross-entropy", static_cast<std::int64_t>(items.size()));
  const auto vocab = static_cast<std::size_t>(runner.spec().vocab);
  std::vector<std::int64_t> rows(tasks.size()), rows_loops(tasks.size()), mass_count(tasks.size());
  std::vector<double> mass_sum(tasks.size());
  for (std::size_t begin = 0; begin < items.size();) {
    std::vector<SimulatedRequest> requests;
    std::size_t end = begin;
    for (; end < items.size() && std::ssize(requests) < limits.max_batch && items[end].task == items[begin].task; ++end)
      requests.push_back({.prompt = items[end].prompt,
                          .sampling = {},
                          .max_tokens = static_cast<std::int32_t>(items[end].answer.size()),
                          .loops = loops,
                          .forced = items[end].answer});
    auto simulation = simulate(runner, requests, {.limits = limits});
    if (!simulation.ok()) return simulation.status();
    const std::size_t task = items[begin].task;
    for (std::size_t i = begin; i < end; ++i)
      for (std::size_t token = 0; token < items[i].answer.size(); ++token)
        add_nats(items[i], token, std::span(simulation->traces[i - begin].logits).subspan(vocab * token, vocab),
                 tasks[task]);
    for (const double mass : simulation->masses) {
      mass_sum[task] += mass;
      ++mass_count[task];
      tasks[task].least_mass = std::min(tasks[task].least_mass, mass);
    }
    for (std::size_t depth = 0; depth < simulation->stats.decoded_loops.size(); ++depth) {
      rows[task] += simulation->stats.decoded_loops[depth];
      rows_loops[task] += simulation->stats.decoded_loops[depth] * static_cast<std::int64_t>(depth + 1);
    }
    progress.advance(static_cast<std::int64_t>(end - begin));
    begin = end;
  }
  for (std::size_t task = 0; task < tasks.size(); ++task) {
    if (rows[task] > 0)
      tasks[task].mean_loops = static_cast<double>(rows_loops[task]) / static_cast<double>(rows[task]);
    if (mass_count[task] > 0) tasks[task].mean_mass = mass_sum[task] / static_cast<double>(mass_count[task]);
  }
  return {};
}

/// What `engine` speculated since `before`.
void add_rounds(const SchedulerStats& before, const SchedulerStats& after, TaskScore& task) {
  task.rounds += after.rounds - before.rounds;
  task.round_tokens += after.round_tokens - before.round_tokens;
  for (std::size_t i = 0; i < after.candidates.size(); ++i) {
    task.candidates += after.candidates[i] - before.candidates[i];
    task.confirmed += after.confirmed[i] - before.confirmed[i];
  }
}

/// Of items of one task that all want an answer.
Status answer_items(Engine& engine, std::span<const Item> items, const LoopParams& loops, Progress& progress,
                    std::uint64_t& ticket, TaskScore& task) {
  std::vector<std::unique_ptr<Collector>> collectors;
  for (const Item& item : items) {
    Request request;
    request.prompt = item.prompt;
    request.sampling.temperature = 0;
    request.loops = loops;
    const auto room = engine.runner().max_context() - static_cast<std::int32_t>(item.prompt.size());
    request.max_tokens = std::min(room, item.max_tokens);
    collectors.push_back(std::make_unique<Collector>());
    TESSERA_TRY(engine.submit(++ticket, std::move(request), *collectors.back()));
  }
  const SchedulerStats before = engine.stats();
  std::size_t reported = 0;
  while (engine.step()) {
    const auto done = static_cast<std::size_t>(
        std::count_if(collectors.begin(), collectors.end(), [](const auto& c) { return c->done; }));
    progress.advance(static_cast<std::int64_t>(done - reported));
    reported = done;
  }
  add_rounds(before, engine.stats(), task);
  for (std::size_t i = 0; i < items.size(); ++i) task.correct += collectors[i]->answers(items[i]) ? 1 : 0;
  return {};
}

Status accuracies(Engine& engine, std::span<const Item> items, const LoopParams& loops, std::vector<TaskScore>& tasks) {
  Progress progress("answering", static_cast<std::int64_t>(items.size()));
  std::uint64_t ticket = 0;
  while (!items.empty()) {
    const std::size_t task = items.front().task;
    const bool raw = items.front().raw;
    const auto other = std::find_if(items.begin(), items.end(),
                                    [&](const Item& item) { return item.task != task || item.raw != raw; });
    const auto count = static_cast<std::size_t>(other - items.begin());
    if (raw)
      progress.advance(static_cast<std::int64_t>(count));
    else
      TESSERA_TRY(answer_items(engine, items.first(count), loops, progress, ticket, tasks[task]));
    items = items.subspan(count);
  }
  return {};
}

}  // namespace

Result<std::vector<TaskScore>> evaluate(const Config& config, Registry& registry, std::span<const std::string> files,
                                        const EvaluateOptions& options) {
  auto tokenizer = Tokenizer::load(config.model.path / "tokenizer.json");
  if (!tokenizer.ok()) return tokenizer.status();
  auto runner = Runner::open(config, registry, {.all_logits = true, .masses = true});
  if (!runner.ok()) return runner.status();
  const DecoderSpec& spec = (*runner)->spec();
  if (spec.eos.empty())
    return fail(Code::invalid_argument, "{}: config.json has no eos_token_id", config.model.path.string());
  const std::int32_t end_token = tokenizer->id_of("<|im_end|>").value_or(spec.eos.front());
  sdk::RequestView asked;
  asked.max_loops = options.max_loops;
  asked.min_loops = options.min_loops;
  asked.exit_threshold = options.exit_threshold;
  const RequestBounds bounds{spec.vocab, (*runner)->max_context(), spec.loops, double{spec.exit_threshold},
                             (*runner)->sparse_from()};
  TESSERA_TRY(validate(asked, bounds));
  LoopParams loops = resolve_loops(asked, bounds);
  const bool decoded =
      loops.exit_threshold < 1 || (*runner)->sparse_from() != LoopParams::kNever;  // rows may differ from a prompt's
  if (decoded) loops.decode_tail = options.decode_tail;

  std::vector<TaskScore> tasks;
  std::vector<Item> items;
  for (const std::string& file : files)
    TESSERA_TRY(read_items(file, *tokenizer, end_token, options.limit, tasks, items));
  SchedulerLimits limits = scheduler_limits(config, **runner);
  limits.max_queue = static_cast<std::int32_t>(items.size());
  for (TaskScore& task : tasks) task.mean_loops = loops.max;
  TESSERA_TRY(decoded ? decoded_cross_entropies(**runner, items, limits, loops, tasks)
                      : prefilled_cross_entropies(**runner, items, loops.max, tasks));
  Metrics metrics;
  Engine engine(std::move(*runner), limits, acceptance_of(config), *tokenizer, metrics);
  TESSERA_TRY(accuracies(engine, items, loops, tasks));
  TaskScore all{"all"};
  all.mean_loops = 0;
  for (const TaskScore& task : tasks) {
    all.prompts += task.prompts;
    all.answered += task.answered;
    all.correct += task.correct;
    all.nats += task.nats;
    all.answer_tokens += task.answer_tokens;
    all.rounds += task.rounds;
    all.round_tokens += task.round_tokens;
    all.candidates += task.candidates;
    all.confirmed += task.confirmed;
    all.mean_loops += task.mean_loops / static_cast<double>(tasks.size());
  }
  tasks.push_back(all);
  return tasks;
}

}  // namespace tessera
