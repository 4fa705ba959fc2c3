// The backend's threads: they spin a little between operations, then sleep.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/sdk/device.h"

namespace tessera_cpu {

class ThreadPool final : public tessera::sdk::Executor {
 public:
  explicit ThreadPool(int width);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::int32_t width() const noexcept override { return static_cast<std::int32_t>(workers_.size()) + 1; }
  void run(std::int64_t count, void (*task)(void*, std::int64_t, std::int64_t), void* context) noexcept override;

 private:
  void stop();
  void work();
  void take_chunks();

  std::vector<std::thread> workers_;
  // One job at a time. A worker counts itself into `active_` before it looks at `open_`; the caller closes the job and
  // then waits until nobody is active. So a worker that wakes late finds the job closed and touches nothing of it, and
  // nobody waits for threads that never came.
  void (*task_)(void*, std::int64_t, std::int64_t) = nullptr;
  void* context_ = nullptr;
  std::int64_t count_ = 0;
  std::int64_t chunk_ = 1;
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> active_{0};
  std::atomic<bool> open_{false};
  std::atomic<std::uint64_t> round_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  int sleepers_ = 0;  // under mutex_
};

}  // namespace tessera_cpu
