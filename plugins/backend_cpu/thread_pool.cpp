#include "thread_pool.h"

#include <algorithm>
#include <chrono>

namespace tessera_cpu {
namespace {

constexpr std::chrono::microseconds kSpin{50};
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
  busy_ = static_cast<int>(workers_.size());
  {
    const std::lock_guard lock(mutex_);
    ++round_;
  }
  wake_.notify_all();
  take_chunks();
  while (busy_.load(std::memory_order_acquire) != 0) pause();
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
  while (true) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    while (round_.load(std::memory_order_acquire) == seen && !stop_ && std::chrono::steady_clock::now() < deadline)
      pause();
    if (round_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || round_.load() != seen; });
    }
    if (stop_) return;
    ++seen;
    take_chunks();
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace tessera_cpu
