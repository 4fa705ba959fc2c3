// tessera eval: cross-entropy and accuracy on held-out prompts with known answers.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/common.h"
#include "base/table.h"
#include "bench/evaluate.h"
#include "bench/sparse_config.h"

namespace tessera::app {
namespace {

struct Options {
  ConfigOptions config;
  std::vector<std::string> files;
  EvaluateOptions evaluate;
  std::vector<double> retentions;
  bool json = false;
};

std::string accuracy(const TaskScore& task) {
  return task.answered == 0 ? "-" : fmt::format("{:.1f} %", task.accuracy() * 100);
}

std::string speculation(const TaskScore& task) {
  if (task.candidates == 0) return "-";
  return fmt::format("{:.3f} / {:.2f}", static_cast<double>(task.confirmed) / static_cast<double>(task.candidates),
                     static_cast<double>(task.round_tokens) / static_cast<double>(task.rounds));
}

nlohmann::ordered_json json_of(const std::vector<TaskScore>& tasks) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const TaskScore& task : tasks)
    json[task.name] = {
        {"prompts", task.prompts},
        {"answered", task.answered},
        {"accuracy", task.answered == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(task.accuracy())},
        {"cross_entropy", task.cross_entropy()},
        {"answer_tokens", task.answer_tokens},
        {"mean_loops", task.mean_loops},
        {"rounds", task.rounds},
        {"round_tokens", task.round_tokens},
        {"candidates", task.candidates},
        {"confirmed", task.confirmed},
        {"mean_mass", task.mean_mass},
        {"least_mass", task.least_mass}};
  return json;
}

std::string text_of(const std::vector<TaskScore>& tasks) {
  Table table({"task", "prompts", "accuracy", "nats/token", "answer tokens", "loops", "mass mean / least",
               "confirmed / tokens a round"});
  for (const TaskScore& task : tasks)
    table.add({task.name, std::to_string(task.prompts), accuracy(task), fmt::format("{:.4f}", task.cross_entropy()),
               std::to_string(task.answer_tokens), fmt::format("{:.2f}", task.mean_loops),
               task.mean_mass < 1 ? fmt::format("{:.3f} / {:.3f}", task.mean_mass, task.least_mass) : "-",
               speculation(task)});
  return table.text();
}

/// One run for each retention: loop_reference where the configuration names no other strategy.
int run_retentions(const Options& options, const Config& config) {
  std::vector<std::string> head{"task"};
  std::vector<std::vector<std::string>> rows;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const double retention : options.retentions) {
    const Config sparse = with_retention(config, fmt::format("{}", retention), "--retention");
    Registry registry = make_registry(sparse);
    auto tasks = evaluate(sparse, registry, options.files, options.evaluate);
    if (!tasks.ok()) return report(tasks.status());
    json[fmt::format("{}", retention)] = json_of(*tasks);
    for (const char* column : {"acc", "nats", "mass"}) head.push_back(fmt::format("{} {}", column, retention));
    rows.resize(tasks->size());
    for (std::size_t i = 0; i < tasks->size(); ++i) {
      const TaskScore& task = (*tasks)[i];
      if (rows[i].empty()) rows[i].push_back(task.name);
      rows[i].push_back(task.answered == 0 ? "-" : fmt::format("{:.3f}", task.accuracy()));
      rows[i].push_back(fmt::format("{:.4f}", task.cross_entropy()));
      rows[i].push_back(task.mean_mass < 1 ? fmt::format("{:.3f}", task.mean_mass) : "-");
    }
  }
  Table table(head);
  for (const auto& row : rows) table.add(row);
  fmt::print("{}", options.json ? json.dump(2) + "\n" : table.text());
  return 0;
}

int run(const Options& options) {
  auto config = options.config.load();
  if (!config.ok()) return report(config.status());
  if (!options.retentions.empty()) return run_retentions(options, *config);
  Registry registry = make_registry(*config);
  auto tasks = evaluate(*config, registry, options.files, options.evaluate);
  if (!tasks.ok()) return report(tasks.status());
  fmt::print("{}", options.json ? json_of(*tasks).dump(2) + "\n" : text_of(*tasks));
  return 0;
}

}  // namespace

void add_eval(CLI::App& root, int& exit_code) {
  auto* command =
      root.add_subcommand("eval", "Accuracy and cross-entropy on JSON lines of {task, prompt, answer} or {task, text}");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command);
  command->add_option("data", options->files, "JSON lines files")->required();
  command->add_option("--limit", options->evaluate.limit, "Prompts of each task (0 = all)")->capture_default_str();
  EvaluateOptions& loops = options->evaluate;
  command->add_option("--max-loops", loops.max_loops, "Looped models: loops of every token at most; 0 = all");
  command->add_option("--min-loops", loops.min_loops, "Looped models: loops of a decoded token at least")
      ->capture_default_str();
  command->add_option("--exit-threshold", loops.exit_threshold,
                      "Looped models: a decoded token ends once its exit probability sums up to this; 1 = never "
                      "(default: the model's)");
  command
      ->add_option("--decode-tail", loops.decode_tail,
                   "With exits or sparse decoding: last prompt tokens that count as decoded")
      ->capture_default_str();
  command
      ->add_option("--retention", options->retentions,
                   "Looped models: one run for each of these shares of sparse decoding, side by side; 1 is dense")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0));
  command->add_flag("--json", options->json, "For programs");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tessera::app
