// A progress bar on stderr; silent unless stderr is a terminal.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace tessera {

/// One long job. Draws at most ten times a second; `finish` (or the destructor) clears the line.
class Progress {
 public:
  /// `total` in the caller's units, shown as a percentage; 0 = unknown.
  Progress(std::string label, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t amount);
  void finish();

 private:
  void draw();

  std::string label_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool visible_;
  bool finished_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace tessera
