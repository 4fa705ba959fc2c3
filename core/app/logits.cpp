// tessera logits: the logits after every token of a list, with a hash of their bits.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/common.h"
#include "base/sha256.h"
#include "base/table.h"
#include "bench/score.h"

namespace tessera::app {
namespace {

struct Options {
  ConfigOptions config;
  std::string tokens;
  std::string raw, raw_exits, raw_states;
  std::int32_t max_loops = 0;
  bool json = false;
  std::size_t top = 5;
};

Result<std::vector<std::int32_t>> parse_tokens(std::string text, std::int32_t vocab) {
  for (char& c : text)
    if (c == ',' || c == '[' || c == ']') c = ' ';
  std::istringstream words(text);
  std::vector<std::int32_t> tokens;
  for (std::string word; words >> word;) {
    std::size_t used = 0;
    long value = -1;
    try {
      value = std::stol(word, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used != word.size() || value < 0 || value >= vocab)
      return fail(Code::invalid_argument, "'{}' is no token; wanted ids from 0 to {}, separated by commas", word,
                  vocab - 1);
    tokens.push_back(static_cast<std::int32_t>(value));
  }
  if (tokens.empty()) return fail(Code::invalid_argument, "no tokens were given; wanted ids like 1,872,3");
  return tokens;
}

std::vector<std::size_t> best(std::span<const float> logits, std::size_t count) {
  std::vector<std::size_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  count = std::min(count, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](std::size_t a, std::size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  order.resize(count);
  return order;
}

Status write(const std::string& file, const LoopStates& states) {
  std::ofstream out(file, std::ios::binary);
  for (const auto& loop : states) out.write(reinterpret_cast<const char*>(loop.data()), std::ssize(loop) * 4);
  return out.flush() ? Status{} : fail(Code::internal, "{}: cannot be written", file);
}

int run(const Options& options) {
  auto config = options.config.load();
  if (!config.ok()) return report(config.status());
  config->scheduler.max_batch = 1;
  Registry registry = make_registry(*config);
  auto runner = Runner::open(*config, registry, {.all_logits = true});
  if (!runner.ok()) return report(runner.status());
  auto tokens = parse_tokens(options.tokens, (*runner)->spec().vocab);
  if (!tokens.ok()) return report(tokens.status());

  std::ofstream raw;
  if (!options.raw.empty()) raw.open(options.raw, std::ios::binary);
  std::ofstream raw_exits;
  if (!options.raw_exits.empty()) raw_exits.open(options.raw_exits, std::ios::binary);
  std::vector<float> exits;
  LoopStates states;
  Table table({"position", "token", "best next (id logit)"});
  nlohmann::json rows = nlohmann::json::array();
  Sha256 hash;
  Status status = score(
      **runner, *tokens,
      [&](std::int32_t position, std::span<const float> logits) {
        hash.add(std::as_bytes(logits));
        if (raw.is_open())
          raw.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
        std::string text;
        nlohmann::json row = nlohmann::json::array();
        for (std::size_t id : best(logits, options.top)) {
          text += fmt::format("{} {:.4f}  ", id, logits[id]);
          row.push_back({id, logits[id]});
        }
        table.add({std::to_string(position), std::to_string((*tokens)[static_cast<std::size_t>(position)]), text});
        rows.push_back(row);
      },
      options.max_loops, &exits, options.raw_states.empty() ? nullptr : &states);
  if (!status.ok()) return report(status);
  if (!options.raw_exits.empty() && exits.empty())
    return report(fail(Code::invalid_argument, "--raw-exits: this model has no exit gate; leave it out"));
  if (raw_exits.is_open()) raw_exits.write(reinterpret_cast<const char*>(exits.data()), std::ssize(exits) * 4);
  if (raw_exits.is_open() && !raw_exits.flush())
    return report(fail(Code::internal, "{}: cannot be written", options.raw_exits));
  if (raw.is_open() && !raw.flush()) return report(fail(Code::internal, "{}: cannot be written", options.raw));
  if (!options.raw_states.empty())
    if (Status written = write(options.raw_states, states); !written.ok()) return report(written);
  const std::string digest = to_hex(hash.finish());
  if (options.json)
    fmt::print("{}\n", nlohmann::json{{"sha256", digest}, {"top", rows}}.dump());
  else
    fmt::print("{}sha256 of the logit bits: {}\n", table.text(), digest);
  return 0;
}

}  // namespace

void add_logits(CLI::App& root, int& exit_code) {
  auto* command = root.add_subcommand("logits", "Logits after every token of a list, and the hash of their bits");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command);
  command->add_option("tokens", options->tokens, "Token ids, separated by commas")->required();
  command->add_option("--top", options->top, "Candidates shown for each position")->capture_default_str();
  command->add_option("--raw", options->raw, "Write all logits to this file (f32, little-endian, [tokens][vocab])");
  command->add_option("--max-loops", options->max_loops, "Looped models: loops that every token runs; 0 = all")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--raw-exits", options->raw_exits,
                      "Looped models: write the exit probabilities after the last of them (f32, [tokens])");
  command->add_option("--raw-states", options->raw_states,
                      "Looped models: write the hidden states that each loop leaves (f32, [loops][tokens][hidden])");
  command->add_flag("--json", options->json, "For programs");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tessera::app
