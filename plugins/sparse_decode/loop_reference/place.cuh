// What every kernel of loop_reference asks: whose row, which head, which reference.
#pragma once
#include "cuda.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/numerics.h"

namespace tessera_loop {

namespace sdk = tessera::sdk;

struct Place {
  std::int32_t row, head;
  std::int32_t length;  // positions that the row sees
  const std::int32_t* pages;
  std::int32_t kv_head;
  std::int64_t index;              // of (slot, layer, head) in the store
  std::int64_t pair;               // of (row, head) in the scratch and in the scores of attention
  std::int64_t column;             // of the head in q and out
  const std::int32_t* list_pages;  // of the row

  __device__ Place(const Call& call, std::int32_t row, std::int32_t head) : row(row), head(head) {
    const sdk::PackedRows& rows = call.args.rows;
    length = rows.positions[row] + 1;
    pages = rows.pages + rows.slices[rows.row_slice[row]].first_page;
    kv_head = head / (call.shape.num_q_heads / call.shape.num_kv_heads);
    index = (static_cast<std::int64_t>(rows.references[row]) * call.shape.num_layers + call.args.layer) *
                call.shape.num_q_heads +
            head;
    pair = static_cast<std::int64_t>(row) * call.shape.num_q_heads + head;
    column = static_cast<std::int64_t>(head) * call.shape.head_dim;
    list_pages = rows.list_pages + rows.list_first[row];
  }
  __device__ std::int64_t at(const Call& call, std::int32_t position) const {
    return call.args.kv.offset(pages[position / sdk::kPageSize], call.args.layer, position % sdk::kPageSize, kv_head);
  }
  /// Entry `rank` of the list; those of one page lie side by side.
  __device__ std::int32_t* selected(const Call& call, std::int32_t rank) const {
    const std::int64_t list =
        (static_cast<std::int64_t>(list_pages[rank / sdk::kListPage]) * call.shape.num_layers + call.args.layer) *
            call.shape.num_q_heads +
        head;
    return call.store.lists + list * sdk::kListPage + rank % sdk::kListPage;
  }
  __device__ const float* captured_scores(const Call& call) const {
    return call.args.scores + pair * call.args.scores_stride;
  }
};

}  // namespace tessera_loop
