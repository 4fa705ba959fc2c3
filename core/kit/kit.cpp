#include "kit/kit.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/nearest.h"
#include "kit/child.h"

namespace tessera {
namespace {

using nlohmann::json;

// A report is lines: {"doing": "..."} any number of times, then one with the verdict.
bool write_line(int fd, const json& line) {
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  return ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

json to_json(const Finding& finding) {
  json line = {{"verdict", static_cast<int>(finding.verdict)}, {"reason", finding.reason}};
  if (finding.facts)
    line["facts"] = {{"kind", finding.facts->kind},
                     {"name", finding.facts->name},
                     {"version", finding.facts->version},
                     {"device", finding.facts->device},
                     {"capabilities", finding.facts->capabilities}};
  return line;
}

Finding from_json(const json& line) {
  Finding finding{static_cast<Verdict>(line.value("verdict", 1)), line.value("reason", "")};
  if (const auto facts = line.find("facts"); facts != line.end())
    finding.facts = PluginFacts{facts->value("kind", ""), facts->value("name", ""), facts->value("version", ""),
                                facts->value("device", ""), facts->value("capabilities", std::uint64_t{0})};
  return finding;
}

/// What the child said last of what it was doing, and its finding if it came that far.
struct Told {
  std::string doing;
  std::optional<Finding> finding;
};

Told read_report(const std::string& report) {
  Told told;
  std::istringstream lines(report);
  for (std::string text; std::getline(lines, text);) {
    const json line = json::parse(text, nullptr, false);
    if (!line.is_object()) continue;
    if (line.contains("verdict")) told.finding = from_json(line);
    told.doing = line.value("doing", told.doing);
  }
  return told;
}

/// How a child that did not live to tell, or died after telling, is judged.
Finding judge(const ChildResult& child, std::chrono::seconds timeout) {
  const Told told = read_report(child.report);
  const bool clean = !child.timed_out && child.signal == 0 && child.exit_status == 0;
  if (told.finding && clean) return *told.finding;
  std::string what = child.timed_out     ? fmt::format("did not finish in {} s", timeout.count())
                     : child.signal != 0 ? fmt::format("crashed: SIG{}", sigabbrev_np(child.signal))
                                         : fmt::format("ended the process with status {}", child.exit_status);
  if (told.finding)
    what += " after the case, when the process ended";
  else if (!told.doing.empty())
    what += " while " + told.doing;
  if (const std::string words = child.last_words(); !words.empty()) what += fmt::format("; it said: {}", words);
  return {Verdict::failed, what};
}

bool chosen(const std::vector<std::string>& only, std::string_view name) {
  return only.empty() ||
         std::any_of(only.begin(), only.end(), [&](const std::string& wanted) { return name.starts_with(wanted); });
}

Status check_choice(const std::vector<std::string>& only) {
  std::vector<std::string> known;
  for (const KitCase* one : all_cases()) known.push_back(one->name);
  for (const std::string& wanted : only) {
    if (std::any_of(known.begin(), known.end(), [&](const auto& name) { return name.starts_with(wanted); })) continue;
    const std::string near = nearest(wanted, known);
    return fail(
        Code::invalid_argument, "no case is called '{}'; {}", wanted,
        near.empty() ? fmt::format("there are {}", fmt::join(known, ", ")) : fmt::format("did you mean '{}'?", near));
  }
  return {};
}

/// One run over all cases. Cases on which others rest run even when they were not asked for, and count then too.
class Run {
 public:
  Run(const KitOptions& options, const std::function<void(const CaseResult&)>& done) : options_(options), done_(done) {}

  void add(std::span<const KitCase> cases) {
    for (const KitCase& one : cases)
      if (chosen(options_.only, one.name)) settle(one);
  }
  KitReport take() { return std::move(report_); }

  /// The plugin's kind, for which it is loaded if any of `cases` is wanted; "" when it is not known.
  std::string kind_of(std::span<const KitCase> cases) {
    if (report_.facts.kind.empty() &&
        std::any_of(cases.begin(), cases.end(), [&](const KitCase& one) { return chosen(options_.only, one.name); }))
      settle(library_cases().back());
    return report_.facts.kind;
  }

 private:
  const Finding& settle(const KitCase& one) {
    for (const CaseResult& result : report_.cases)
      if (result.one == &one) return result.finding;
    Finding finding = blocked(one);
    if (finding.verdict == Verdict::passed) finding = in_child(one);
    if (finding.facts) report_.facts = *finding.facts;
    report_.cases.push_back({&one, std::move(finding)});
    done_(report_.cases.back());
    return report_.cases.back().finding;
  }

  /// Skipped when the case it rests on did not pass.
  Finding blocked(const KitCase& one) {
    for (const KitCase* needed : all_cases()) {
      if (std::string_view(needed->name) != one.needs) continue;
      const Verdict verdict = settle(*needed).verdict;
      if (verdict != Verdict::passed) return {Verdict::skipped, fmt::format("rests on {}", one.needs)};
    }
    return {};
  }
  Finding in_child(const KitCase& one) {
    std::vector<std::string> command = options_.command;
    command.insert(command.end(), {"--case", one.name, "--report-fd"});
    auto child = run_child(std::move(command), options_.timeout);
    return child.ok() ? judge(*child, options_.timeout) : Finding{Verdict::skipped, child.status().message};
  }

  const KitOptions& options_;
  const std::function<void(const CaseResult&)>& done_;
  KitReport report_;
};

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::passed: return "passed";
    case Verdict::failed: return "FAILED";
    case Verdict::not_claimed: return "not claimed";
    case Verdict::skipped: return "skipped";
  }
  return "unknown";
}

std::vector<const KitCase*> all_cases() {
  std::vector<const KitCase*> all;
  for (const auto cases : {library_cases(), lifecycle_cases(), attention_cases()})
    for (const KitCase& one : cases) all.push_back(&one);
  return all;
}

std::int64_t KitReport::count(Verdict verdict) const {
  return std::count_if(cases.begin(), cases.end(), [&](const auto& one) { return one.finding.verdict == verdict; });
}

bool KitReport::ok() const {
  return count(Verdict::passed) > 0 && count(Verdict::failed) + count(Verdict::skipped) == 0;
}

Result<KitReport> check_plugin(const KitOptions& options, const std::function<void(const CaseResult&)>& done) {
  TESSERA_TRY(check_choice(options.only));
  Run run(options, done);
  run.add(library_cases());
  run.add(lifecycle_cases());
  if (run.kind_of(attention_cases()) == "attention") run.add(attention_cases());
  return run.take();
}

Status run_case(Subject subject, const std::string& name, int report_fd) {
  for (const KitCase* one : all_cases()) {
    if (one->name != name) continue;
    subject.doing = [=](std::string_view what) { write_line(report_fd, {{"doing", what}}); };
    if (!write_line(report_fd, to_json(one->run(subject))))
      return fail(Code::internal, "cannot report the case {}", name);
    return {};
  }
  return fail(Code::not_found, "no case is called '{}'", name);
}

}  // namespace tessera
