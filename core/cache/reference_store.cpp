#include "cache/reference_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace tessera {

ReferenceStore::ReferenceStore(std::int32_t slots, std::int32_t list_pages, std::optional<std::uint64_t> page_seed)
    : slots_(static_cast<std::size_t>(slots)), place_(static_cast<std::size_t>(list_pages)) {
  for (std::int32_t slot = slots; slot > 0; --slot) free_.push_back(slot - 1);
  for (std::int32_t page = list_pages; page > 0; --page) free_pages_.push_back(page - 1);
  if (page_seed) {
    Random random(*page_seed, 3);
    for (std::size_t i = free_pages_.size(); i > 1; --i)
      std::swap(free_pages_[i - 1], free_pages_[random.below(static_cast<std::uint32_t>(i))]);
  }
  for (std::size_t i = 0; i < free_pages_.size(); ++i)
    place_[static_cast<std::size_t>(free_pages_[i])] = static_cast<std::int32_t>(i);
}

ReferenceLease ReferenceStore::reserve(const RowReference& reference, std::uint64_t owner, std::uint64_t generation) {
  const std::int32_t index = reference.slot;
  const auto found = std::find(free_.rbegin(), free_.rend(), index);
  check(found != free_.rend(), "reference slot {} is reserved for sequence {} but is not free", index, owner);
  free_.erase(std::next(found).base());
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  slot.state = ReferenceState::leased, ++slot.incarnation;
  slot.owner = owner, slot.generation = generation;
  for (const std::int32_t page : reference.pages) take_page(page, owner);
  slot.pages.assign(reference.pages.begin(), reference.pages.end());
  high_water_ = std::max(high_water_, outstanding());
  pages_high_water_ = std::max(pages_high_water_, outstanding_pages());
  return {index, slot.incarnation, owner, generation};
}

void ReferenceStore::take_page(std::int32_t page, std::uint64_t owner) {
  const bool free = page >= 0 && page < list_pages() && place_[static_cast<std::size_t>(page)] >= 0;
  check(free, "list page {} is reserved for sequence {} but is not free", page, owner);
  const std::int32_t place = std::exchange(place_[static_cast<std::size_t>(page)], -1), last = free_pages_.back();
  free_pages_.pop_back();
  if (last == page) return;
  free_pages_[static_cast<std::size_t>(place)] = last;
  place_[static_cast<std::size_t>(last)] = place;
}

bool ReferenceStore::live(const ReferenceLease& lease) const {
  if (lease.slot < 0 || lease.slot >= size()) return false;
  const Slot& slot = slots_[static_cast<std::size_t>(lease.slot)];
  return slot.state != ReferenceState::empty && slot.incarnation == lease.incarnation && slot.owner == lease.owner &&
         slot.generation == lease.generation;
}

RowReference ReferenceStore::reference(const ReferenceLease& lease) const {
  check(live(lease), "slot {}: the reference of sequence {} is asked for under a stale lease", lease.slot, lease.owner);
  return {lease.slot, slots_[static_cast<std::size_t>(lease.slot)].pages};
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
  Slot& slot = slots_[static_cast<std::size_t>(lease.slot)];
  slot.state = ReferenceState::empty;
  for (const std::int32_t page : slot.pages) {
    place_[static_cast<std::size_t>(page)] = static_cast<std::int32_t>(free_pages_.size());
    free_pages_.push_back(page);
  }
  slot.pages.clear();
  free_.push_back(lease.slot);
  return true;
}

RowReference ReferenceDraw::take(std::int32_t pages) {
  const std::vector<std::int32_t>&slots = store_.free(), &lists = store_.free_pages();
  check(slots_ < slots.size(), "a row is captured where no reference slot is free");
  check(pages_ + static_cast<std::size_t>(pages) <= lists.size(), "a row needs {} list pages of {}, {} of them drawn",
        pages, lists.size(), pages_);
  RowReference reference{slots[slots.size() - ++slots_], {}};
  for (std::int32_t i = 0; i < pages; ++i) reference.pages.push_back(lists[lists.size() - ++pages_]);
  return reference;
}

}  // namespace tessera
