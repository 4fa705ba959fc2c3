#include "thread_pool.h"

#include <algorithm>
#include <chrono>

namespace tessera_cpu {
namespace {

constexpr std::chrono::microseconds kSpin{50};
constexpr int kSpinsBeforeYield = 2000;
constexpr std::int64_t kChunksPerThread = 8;  // so that a slow thread holds up little

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int width) {
  try {
    for (int i = 1; i < width; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {  // the system has no more threads: those started must be joined before the members go
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t count, void (*task)(void*, std::int64_t, std::int64_t), void* context) noexcept {
  if (count <= 0) return;
  if (workers_.empty() || count == 1) {
    task(context, 0, count);
    return;
  }
  task_ = task;
  context_ = context;
  count_ = count;
  chunk_ = std::max<std::int64_t>(1, count / (width() * kChunksPerThread));
  next_ = 0;
  open_ = true;
  bool sleeping = false;
  {
    const std::lock_guard lock(mutex_);
    ++round_;
    sleeping = sleepers_ > 0;
  }
  if (sleeping) wake_.notify_all();
  take_chunks();
  open_ = false;
  for (int spins = 0; active_ != 0; ++spins) {
    if (spins < kSpinsBeforeYield)
      pause();
    else
      std::this_thread::yield();  // the worker may be waiting for this very core
  }
}

void ThreadPool::take_chunks() {
  while (true) {
    const std::int64_t begin = next_.fetch_add(chunk_);
    if (begin >= count_) return;
    task_(context_, begin, std::min(begin + chunk_, count_));
  }
}

void ThreadPool::work() {
  std::uint64_t seen = 0;
  while (!stop_) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    while (round_ == seen && !stop_ && std::chrono::steady_clock::now() < deadline) pause();
    if (round_ == seen) {
      std::unique_lock lock(mutex_);
      ++sleepers_;
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      --sleepers_;
    }
    seen = round_;
    ++active_;
    if (open_) take_chunks();
    --active_;
  }
}

}  // namespace tessera_cpu
