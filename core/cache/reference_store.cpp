#include "cache/reference_store.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {

ReferenceStore::ReferenceStore(std::int32_t slots) : slots_(static_cast<std::size_t>(slots)) {
  for (std::int32_t slot = slots; slot > 0; --slot) free_.push_back(slot - 1);
}

ReferenceLease ReferenceStore::reserve(std::int32_t index, std::uint64_t owner, std::uint64_t generation) {
  const auto found = std::find(free_.rbegin(), free_.rend(), index);
  check(found != free_.rend(), "reference slot {} is reserved for sequence {} but is not free", index, owner);
  free_.erase(std::next(found).base());
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  slot = {ReferenceState::leased, slot.incarnation + 1, owner, generation};
  high_water_ = std::max(high_water_, outstanding());
  return {index, slot.incarnation, owner, generation};
}

bool ReferenceStore::live(const ReferenceLease& lease) const {
  if (lease.slot < 0 || lease.slot >= size()) return false;
  const Slot& slot = slots_[static_cast<std::size_t>(lease.slot)];
  return slot.state != ReferenceState::empty && slot.incarnation == lease.incarnation && slot.owner == lease.owner &&
         slot.generation == lease.generation;
}

void ReferenceStore::captured(const ReferenceLease& lease) {
  check(live(lease), "slot {}: a row of sequence {} was captured under a stale lease", lease.slot, lease.owner);
  Slot& slot = slots_[static_cast<std::size_t>(lease.slot)];
  check(slot.state == ReferenceState::leased, "slot {}: captured twice for sequence {}", lease.slot, lease.owner);
  slot.state = ReferenceState::ready;
}

bool ReferenceStore::readable(const ReferenceLease& lease) const {
  return live(lease) && slots_[static_cast<std::size_t>(lease.slot)].state == ReferenceState::ready;
}

bool ReferenceStore::release(const ReferenceLease& lease) {
  if (!live(lease)) return false;
  slots_[static_cast<std::size_t>(lease.slot)].state = ReferenceState::empty;
  free_.push_back(lease.slot);
  return true;
}

}  // namespace tessera
