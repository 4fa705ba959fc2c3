// Sparse decode attention. Of looped models: later loops of a decoded row read only the positions that mattered in an
// earlier one. Of any model: a decoded row attends to some of its pages only.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tessera/sdk/abi.h"
#include "tessera/sdk/attention.h"
#include "tessera/sdk/batch.h"
#include "tessera/sdk/device.h"
#include "tessera/sdk/kv.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {

/// Positions of one index list that a list page holds. A list page has room for as many of every list of one row: int32
/// [layer][query head][kListPage]. Entry i of a list is on the row's list page i / kListPage.
inline constexpr std::int32_t kListPage = 64;

constexpr std::size_t list_page_bytes(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.num_layers) * static_cast<std::size_t>(shape.num_q_heads) * kListPage *
         sizeof(std::int32_t);
}

/// One layer of the captured or of the consuming rows of a step. A slice has one row, or those of a round of
/// speculation, at most limits.max_decode_rows in all.
struct SparseArgs {
  Matrix q;    // [rows][num_q_heads * head_dim], rotated
  Matrix out;  // capture: what attention gave, read only; consume: to be written
  KvView kv;   // the rows' own K and V of this layer and depth are already in it
  std::int32_t layer;
  PackedRows rows;      // device pointers; rows.references says which slot each row has, rows.list_pages which pages
  void* workspace;      // `workspace_bytes` from bind, uninitialized
  const float* scores;  // capture: scores[(row * num_q_heads + head) * scores_stride + position]
  std::int64_t scores_stride;
  float* masses;  // capture: [rows][num_q_heads] the share of the attention kept by each head's selection
};

/// One layer of rows and the pages that they may see.
struct TableArgs {
  Matrix q;  // select: [rows][num_q_heads * head_dim], rotated; appended: without data
  KvView kv;
  std::int32_t layer;
  PackedRows rows;           // device pointers
  const Slice* kept_slices;  // select: [rows] where each row's kept pages go: `pages` + first_page, num_pages of them
  std::int32_t* pages;       // select: to be written there, ascending in the row's own table, its last page last
  void* workspace;           // `workspace_bytes` from bind, uninitialized
};

/// How a strategy makes decoded rows sparse.
enum class SparseStyle : std::uint32_t {
  references = 0,  // looped models: capture, then consume
  tables = 1,      // plain models: select; attention itself is as ever, over the kept pages as if there were no others
};

/// What a strategy claims for references: slots, and pages of index lists. The engine hands out the ids of both.
struct ReferenceRoom {
  std::int32_t num_slots;
  std::int32_t num_list_pages;
};

/// One object per model; every call comes from the engine thread. References live in slots, and their index lists on
/// list pages, that the engine hands out: to each row between its capture and its last loop.
///
///   references: create -> bind -> (plan -> capture or consume x layers)* -> destroy
///   tables:     create -> bind -> attach -> ((appended, select) x layers)* -> destroy
///
/// What a row gets is a function of its own request and position (docs/numerics.md, "Sparse decoding").
class SparseDecode {
 public:
  static constexpr Kind kKind = Kind::sparse_decode;

  /// references: depth (loop - 1) whose rows are captured; deeper ones consume.
  virtual std::int32_t capture_depth() const noexcept = 0;
  /// False when this configuration would keep everything: all rows are dense then, and nothing else is called.
  virtual bool active() const noexcept = 0;

  /// references: list pages that a row captured at `position` needs: a function of the position alone, and never less
  /// at a higher one. A row may be given more.
  virtual std::int32_t list_pages(std::int32_t position) const noexcept {
    (void)position;
    return 0;
  }

  /// [control] Once. Claims the memory of all references; `workspace_bytes` is lent back on every call.
  virtual Status bind(const AttentionShape& shape, const StepLimits& limits, const ReferenceRoom& room,
                      const DeviceContext& device, std::size_t& workspace_bytes) noexcept = 0;
  /// [control] After bind: what it claimed for references and lists together, for logs.
  virtual std::size_t reference_bytes() const noexcept { return 0; }
  /// [step] Before the layers, with host pointers valid during the call.
  virtual Status plan(RowMode mode, const PackedRows& rows) noexcept {
    (void)mode, (void)rows;
    return {};
  }
  /// [step] With kGraphCapturable: as Attention::topology, of the rows planned last for this mode.
  virtual std::uint64_t topology(RowMode mode) const noexcept {
    (void)mode;
    return 0;
  }
  /// [step] After attention has written `out` and the scores of these rows. Enqueues only.
  virtual Status capture(const SparseArgs& args, const DeviceContext& device) noexcept {
    (void)args, (void)device;
    return fail(Code::internal, "this strategy captures nothing");
  }
  /// [step] Instead of attention. Enqueues only.
  virtual Status consume(const SparseArgs& args, const DeviceContext& device) noexcept {
    (void)args, (void)device;
    return fail(Code::internal, "this strategy consumes nothing");
  }

  virtual SparseStyle style() const noexcept { return SparseStyle::references; }
  /// tables: of the pages up to `position`, how many a decoded row there attends to: from 1 to all of them, and a
  /// function of the position alone.
  virtual std::int32_t pages_kept(std::int32_t position) const noexcept { return position / kPageSize + 1; }
  /// tables: [control] Once, when the pool is there; what is kept of each page is claimed here.
  virtual Status attach(const KvView& kv) noexcept {
    (void)kv;
    return {};
  }
  /// tables: [step] Keys and values of these rows, sparse or not, have been written. Enqueues only.
  virtual Status appended(const TableArgs& args, const DeviceContext& device) noexcept {
    (void)args, (void)device;
    return {};
  }
  /// tables: [step] Chooses the pages of each row, one row a slice. Enqueues only.
  virtual Status select(const TableArgs& args, const DeviceContext& device) noexcept {
    (void)args, (void)device;
    return fail(Code::internal, "this strategy selects no pages");
  }

 protected:
  ~SparseDecode() = default;  // destroyed through Descriptor::destroy only
};

}  // namespace tessera::sdk
