// tessera run: one prompt, answered on the terminal.
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "app/common.h"
#include "engine/service.h"

namespace tessera::app {
namespace {

using Clock = std::chrono::steady_clock;

/// Prints text as it comes and remembers when.
class Printer final : public sdk::EventSink {
 public:
  void on_event(const sdk::EventView& event) noexcept override {
    if (event.kind == sdk::EventKind::delta) {
      if (first_ == Clock::time_point{}) first_ = Clock::now();
      std::fwrite(event.text.data(), 1, event.text.size(), stdout);
      std::fflush(stdout);
      return;
    }
    if (event.kind == sdk::EventKind::choice_done) reason_ = event.finish;
    if (event.kind != sdk::EventKind::finished && event.kind != sdk::EventKind::failed &&
        event.kind != sdk::EventKind::cancelled)
      return;
    const std::lock_guard lock(mutex_);
    usage_ = event.usage;
    if (event.status != nullptr) status_ = *event.status;
    done_ = true;
    finished_.notify_all();
  }

  Status wait() {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return done_; });
    return status_;
  }

  void print_timings(Clock::time_point start) const {
    const double first = std::chrono::duration<double>(first_ - start).count();
    const double rest = std::chrono::duration<double>(Clock::now() - first_).count();
    const double rate = rest > 0 ? (usage_.completion_tokens - 1) / rest : 0;
    fmt::print(stderr, "\n{} prompt tokens, {} generated ({}), first token {:.1f} ms, then {:.1f} tokens/s\n",
               usage_.prompt_tokens, usage_.completion_tokens, reason_ == sdk::FinishReason::stop ? "stop" : "length",
               first * 1e3, rate);
  }

 private:
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
  Status status_;
  sdk::Usage usage_;
  sdk::FinishReason reason_ = sdk::FinishReason::none;
  Clock::time_point first_{};
};

struct Options {
  ConfigOptions config;
  std::string prompt;
  bool chat = false;
  std::int32_t max_tokens = 0;
  double temperature = 0;
  std::int32_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::optional<std::uint64_t> seed;
  std::int32_t max_loops = 0, min_loops = 1;
  double exit_threshold = -1;
  std::vector<std::string> stops;
};

int run(const Options& options) {
  auto config = options.config.load();
  if (!config.ok()) return report(config.status());
  Registry registry = make_registry(*config);
  Service service(*config);
  if (Status status = service.load(registry); !status.ok()) return report(status);

  sdk::RequestView view;
  const sdk::MessageView message{"user", options.prompt};
  view.prompt_kind = options.chat ? sdk::PromptKind::messages : sdk::PromptKind::text;
  view.messages = std::span(&message, options.chat ? 1 : 0);
  view.prompt = options.prompt;
  view.max_tokens = options.max_tokens;
  view.sampling.temperature = options.temperature;
  view.sampling.top_k = options.top_k;
  view.sampling.top_p = options.top_p;
  view.sampling.min_p = options.min_p;
  view.sampling.has_seed = options.seed.has_value();
  view.sampling.seed = options.seed.value_or(0);
  view.max_loops = options.max_loops;
  view.min_loops = options.min_loops;
  view.exit_threshold = options.exit_threshold;
  const std::vector<std::string_view> stops(options.stops.begin(), options.stops.end());
  view.stops = stops;

  Printer printer;
  std::uint64_t ticket = 0;
  const auto start = Clock::now();
  if (Status status = service.submit(view, printer, &ticket); !status.ok()) return report(status);
  if (Status status = printer.wait(); !status.ok()) return report(status);
  printer.print_timings(start);
  return 0;
}

}  // namespace

void add_run(CLI::App& root, int& exit_code) {
  auto* command = root.add_subcommand("run", "Answer one prompt on the terminal");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command);
  command->add_option("prompt", options->prompt, "The prompt")->required();
  command->add_flag("--chat", options->chat, "The prompt is a user message of a chat");
  command->add_option("--max-tokens", options->max_tokens, "Generated at most (default: to the end of the context)");
  command->add_option("--temperature", options->temperature, "0 is greedy")->capture_default_str();
  command->add_option("--top-k", options->top_k, "0 is off")->capture_default_str();
  command->add_option("--top-p", options->top_p, "1 is off")->capture_default_str();
  command->add_option("--min-p", options->min_p, "0 is off")->capture_default_str();
  command->add_option("--seed", options->seed, "The same seed gives the same answer");
  command->add_option("--stop", options->stops, "End the answer before this text (repeatable)");
  command->add_option("--max-loops", options->max_loops, "Looped models: loops of every token at most; 0 = all");
  command->add_option("--min-loops", options->min_loops, "Looped models: loops of a generated token at least")
      ->capture_default_str();
  command->add_option("--exit-threshold", options->exit_threshold,
                      "Looped models: a generated token ends once its exit probability sums up to this; 1 = never "
                      "(default: the model's)");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tessera::app
