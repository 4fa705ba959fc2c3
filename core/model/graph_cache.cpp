#include "model/graph_cache.h"

#include <algorithm>

#include "base/log.h"

namespace tessera {

Status GraphCache::run(const GraphKey& key, const std::function<Status()>& enqueue) {
  if (capacity_ == 0) return run_eager(enqueue);
  auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    if (!seen(key)) return run_eager(enqueue);
    TESSERA_TRY(make_room(capacity_ - 1));
    std::uint64_t id = 0;
    TESSERA_TRY(record(key, enqueue, id));
    graphs_.push_front({key, id});
    found = by_key_.emplace(key, graphs_.begin()).first;
  }
  graphs_.splice(graphs_.begin(), graphs_, found->second);
  const std::uint64_t id = graphs_.front().id;
  if (id == 0) return run_eager(enqueue);
  ++stats_.replayed;
  return backend_.replay(id);
}

Status GraphCache::run_eager(const std::function<Status()>& enqueue) {
  ++stats_.eager;
  return enqueue();
}

bool GraphCache::seen(const GraphKey& key) {
  const auto found = std::find(seen_.begin(), seen_.end(), key);
  if (found != seen_.end()) {
    seen_.erase(found);
    return true;
  }
  constexpr std::size_t kRemembered = 64;
  seen_.push_front(key);
  if (seen_.size() > kRemembered) seen_.pop_back();
  return false;
}

Status GraphCache::record(const GraphKey& key, const std::function<Status()>& enqueue, std::uint64_t& id) {
  const Status begun = backend_.capture_begin();
  const Status launched = begun.ok() ? enqueue() : Status{};
  const Status ended = begun.ok() ? backend_.capture_end(&id) : begun;
  if (!launched.ok()) {
    if (ended.ok()) (void)backend_.forget(id);
    return launched;
  }
  if (ended.ok()) {
    ++stats_.recorded;
    return {};
  }
  id = 0;
  log(LogLevel::warn, "a step of {} rows cannot be recorded and is launched kernel by kernel: {}", key[0],
      ended.message);
  return {};
}

Status GraphCache::make_room(std::int32_t capacity) {
  while (size() > capacity) {
    const Graph& last = graphs_.back();
    if (last.id != 0) {
      TESSERA_TRY(backend_.forget(last.id));
      ++stats_.forgotten;
    }
    by_key_.erase(last.key);
    graphs_.pop_back();
  }
  return {};
}

Status GraphCache::set_capacity(std::int32_t capacity) {
  capacity_ = capacity;
  seen_.clear();
  return make_room(0);
}

}  // namespace tessera
