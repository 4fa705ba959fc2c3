// Who may touch which reference of sparse decoding. The references themselves are the plugin's, on the device.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

/// A slot for one row of one sequence, with the pages of its index lists. A copy that outlives its release is stale and
/// opens nothing.
struct ReferenceLease {
  std::int32_t slot = -1;
  std::uint64_t incarnation = 0;
  std::uint64_t owner = 0;       // never reused
  std::uint64_t generation = 0;  // of the owner: the position of the row
};

enum class ReferenceState { empty, leased, ready };

/// Where a row's reference is: its slot, and its list pages in the order of the ranks.
struct RowReference {
  std::int32_t slot = -1;
  std::vector<std::int32_t> pages{};
  bool operator==(const RowReference&) const = default;
};

/// Host bookkeeping only, not thread-safe. empty -> leased -> ready (captured) -> empty. Each slot counts its leases
/// and never starts again, so that a lease names one use of one slot for ever; memory is one counter a slot, and the
/// ids of the list pages.
class ReferenceStore {
 public:
  /// List pages are handed out in ascending order at first, or with a seed in any order.
  explicit ReferenceStore(std::int32_t slots, std::int32_t list_pages = 0,
                          std::optional<std::uint64_t> page_seed = std::nullopt);

  std::int32_t size() const { return static_cast<std::int32_t>(slots_.size()); }
  std::int32_t outstanding() const { return size() - static_cast<std::int32_t>(free_.size()); }
  std::int32_t high_water() const { return high_water_; }
  std::int32_t list_pages() const { return static_cast<std::int32_t>(place_.size()); }
  std::int32_t outstanding_pages() const { return list_pages() - static_cast<std::int32_t>(free_pages_.size()); }
  std::int32_t pages_high_water() const { return pages_high_water_; }
  /// Slots, and list pages, that nobody has, in the order they should be taken: the last one first.
  const std::vector<std::int32_t>& free() const { return free_; }
  const std::vector<std::int32_t>& free_pages() const { return free_pages_; }

  /// Aborts when the slot or a page is not free.
  ReferenceLease reserve(const RowReference& reference, std::uint64_t owner, std::uint64_t generation);
  bool live(const ReferenceLease& lease) const;
  /// Where the lease's reference is. Aborts on a stale one.
  RowReference reference(const ReferenceLease& lease) const;
  /// Its row was captured in all layers. Aborts on a stale lease or a second capture.
  void captured(const ReferenceLease& lease);
  /// Whether the row may be consumed: live and captured.
  bool readable(const ReferenceLease& lease) const;
  /// The slot and its pages return. False, and nothing changes, when the lease is stale.
  bool release(const ReferenceLease& lease);

 private:
  struct Slot {
    ReferenceState state = ReferenceState::empty;
    std::uint64_t incarnation = 0;
    std::uint64_t owner = 0;
    std::uint64_t generation = 0;
    std::vector<std::int32_t> pages{};  // its memory is used again
  };
  void take_page(std::int32_t page, std::uint64_t owner);

  std::vector<Slot> slots_;
  std::vector<std::int32_t> free_;
  std::vector<std::int32_t> free_pages_;
  std::vector<std::int32_t> place_;  // of each page in free_pages_, -1 when taken
  std::int32_t high_water_ = 0, pages_high_water_ = 0;
};

/// What a plan takes from a store that it must not change.
class ReferenceDraw {
 public:
  explicit ReferenceDraw(const ReferenceStore& store) : store_(store) {}
  /// A slot with so many pages. Aborts where there are none: who plans has made sure of them.
  RowReference take(std::int32_t pages);

 private:
  const ReferenceStore& store_;
  std::size_t slots_ = 0, pages_ = 0;  // taken
};

}  // namespace tessera
