#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tessera {
namespace {

constexpr int kBarWidth = 30;
constexpr std::chrono::milliseconds kRedraw{100};

}  // namespace

Progress::Progress(std::string label, std::int64_t total)
    : label_(std::move(label)),
      total_(total),
      visible_(isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { finish(); }

void Progress::advance(std::int64_t amount) {
  done_ += amount;
  const auto now = std::chrono::steady_clock::now();
  if (!visible_ || now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  draw();
}

void Progress::draw() {
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (total_ <= 0) {
    fmt::print(stderr, "\r\033[K{} {} ({:.0f} s)", label_, done_, elapsed);
  } else {
    const double part = std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
    const int filled = static_cast<int>(part * kBarWidth);
    const double left = part > 0 ? elapsed / part - elapsed : 0;
    fmt::print(stderr, "\r\033[K{} [{:#<{}}{:.<{}}] {:3.0f} %  {:.0f} s left", label_, "", filled, "",
               kBarWidth - filled, part * 100, left);
  }
  std::fflush(stderr);
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (visible_) fmt::print(stderr, "\r\033[K");
}

}  // namespace tessera
