// A command in a process of its own, with a pipe to report through and a time limit.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera {

struct ChildResult {
  bool timed_out = false;
  int signal = 0;       // that ended it, or 0
  int exit_status = 0;  // when no signal did
  std::string report;   // what it wrote to the pipe
  std::string output;   // the end of what it wrote to stdout and stderr

  /// Its last line, or the one in which a sanitizer sums up.
  std::string last_words() const;
};

/// Appends the number of the pipe's descriptor to `command`, whose first word is the program's path. A child that is
/// out of time is killed with all it started; so is one whose parent dies.
Result<ChildResult> run_child(std::vector<std::string> command, std::chrono::seconds timeout);

}  // namespace tessera
