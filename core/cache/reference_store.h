// Who may touch which reference of sparse decoding. The references themselves are the plugin's, on the device.
#pragma once
#include <cstdint>
#include <vector>

namespace tessera {

/// A slot for one row of one sequence. A copy that outlives its release is stale and opens nothing.
struct ReferenceLease {
  std::int32_t slot = -1;
  std::uint64_t incarnation = 0;
  std::uint64_t owner = 0;       // never reused
  std::uint64_t generation = 0;  // of the owner: the position of the row
};

enum class ReferenceState { empty, leased, ready };

/// Host bookkeeping only, not thread-safe. empty -> leased -> ready (captured) -> empty. Each slot counts its leases
/// and never starts again, so that a lease names one use of one slot for ever; memory is one counter a slot.
class ReferenceStore {
 public:
  explicit ReferenceStore(std::int32_t slots);

  std::int32_t size() const { return static_cast<std::int32_t>(slots_.size()); }
  std::int32_t outstanding() const { return size() - static_cast<std::int32_t>(free_.size()); }
  std::int32_t high_water() const { return high_water_; }
  /// Slots that nobody has, in the order they should be taken: the last one first.
  const std::vector<std::int32_t>& free() const { return free_; }

  /// Aborts when the slot is not free.
  ReferenceLease reserve(std::int32_t slot, std::uint64_t owner, std::uint64_t generation);
  bool live(const ReferenceLease& lease) const;
  /// Its row was captured in all layers. Aborts on a stale lease or a second capture.
  void captured(const ReferenceLease& lease);
  /// Whether the row may be consumed: live and captured.
  bool readable(const ReferenceLease& lease) const;
  /// False, and nothing changes, when the lease is stale.
  bool release(const ReferenceLease& lease);

 private:
  struct Slot {
    ReferenceState state = ReferenceState::empty;
    std::uint64_t incarnation = 0;
    std::uint64_t owner = 0;
    std::uint64_t generation = 0;
  };
  std::vector<Slot> slots_;
  std::vector<std::int32_t> free_;
  std::int32_t high_water_ = 0;
};

}  // namespace tessera
