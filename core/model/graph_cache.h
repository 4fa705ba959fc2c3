// Recorded steps. A step that launches what an earlier one did is replayed instead of launched kernel by kernel.
#pragma once
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <vector>

#include "base/status.h"
#include "tessera/sdk/backend.h"

namespace tessera {

/// All that the launches of a step depend on: counts, modes and topologies, never ids, pages, positions or contents.
using GraphKey = std::vector<std::uint64_t>;

struct GraphStats {
  std::int64_t recorded = 0;   // graphs ever
  std::int64_t replayed = 0;   // steps
  std::int64_t eager = 0;      // steps launched kernel by kernel
  std::int64_t forgotten = 0;  // graphs that made room for others
};

/// A key is recorded when it comes the second time, so that a shape that never returns costs nothing; of the recorded
/// ones the least recently used makes room. Used by the engine thread.
class GraphCache {
 public:
  /// `capacity` graphs at most; 0 = record none. `backend` outlives the cache.
  GraphCache(sdk::Backend& backend, std::int32_t capacity) : backend_(backend), capacity_(capacity) {}

  /// Runs the step that `enqueue` launches. Its errors are returned; what cannot be recorded is launched.
  Status run(const GraphKey& key, const std::function<Status()>& enqueue);
  /// A step without a key.
  Status run_eager(const std::function<Status()>& enqueue);

  const GraphStats& stats() const { return stats_; }
  std::int32_t capacity() const { return capacity_; }
  std::int32_t size() const { return static_cast<std::int32_t>(graphs_.size()); }
  /// Forgets every graph; with 0 none is recorded from now on.
  Status set_capacity(std::int32_t capacity);

 private:
  struct Graph {
    GraphKey key;
    std::uint64_t id;  // of the backend; 0 = it could not be recorded
  };
  using Graphs = std::list<Graph>;  // most recently used first

  /// Whether the key came before; remembers it.
  bool seen(const GraphKey& key);
  Status record(const GraphKey& key, const std::function<Status()>& enqueue, std::uint64_t& id);
  Status make_room(std::int32_t capacity);

  sdk::Backend& backend_;
  std::int32_t capacity_;
  Graphs graphs_;
  std::map<GraphKey, Graphs::iterator> by_key_;
  std::list<GraphKey> seen_;  // once, most recent first
  GraphStats stats_;
};

}  // namespace tessera
