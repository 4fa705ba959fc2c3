// The conformance kit: what a plugin owes, as cases that each run in a process of their own, so that a crash, a hang or
// a stray write is a verdict and not the end of the kit.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kit/case.h"

namespace tessera {

struct KitOptions {
  std::vector<std::string> only;     // names of cases, or beginnings of names; empty = all
  std::chrono::seconds timeout{30};  // of one case
  /// Runs one case when "--case NAME --report-fd FD" is appended: a command line that ends in run_case().
  std::vector<std::string> command;
};

struct CaseResult {
  const KitCase* one;
  Finding finding;
};

struct KitReport {
  PluginFacts facts;  // empty when the library could not be loaded
  std::vector<CaseResult> cases;

  std::int64_t count(Verdict verdict) const;
  /// Something ran, and nothing failed or was left out.
  bool ok() const;
};

/// Runs the cases of the plugin's kind, and calls `done` after each. Loads nothing into this process.
Result<KitReport> check_plugin(const KitOptions& options, const std::function<void(const CaseResult&)>& done);

/// The other half: one case in this process, its finding written to `report_fd`.
Status run_case(Subject subject, const std::string& name, int report_fd);

/// All cases, of whatever kind.
std::vector<const KitCase*> all_cases();

}  // namespace tessera
