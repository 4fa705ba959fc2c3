// One packed step: the rows of all requests side by side, and the page tables they read.
#pragma once
#include <cstdint>

namespace tessera::sdk {

/// Consecutive positions of one sequence at one depth. Rows [first_row, first_row + num_rows) of the packed step hold
/// positions [first_position, first_position + num_rows). A decode row is a slice of one row.
/// The slice's page table is pages[first_page .. first_page + num_pages): the page of position p is entry p / 16.
struct Slice {
  std::int32_t first_row;
  std::int32_t num_rows;
  std::int32_t first_position;
  std::int32_t depth;  // which loop of a looped model; 0 for a plain one
  std::int32_t first_page;
  std::int32_t num_pages;  // at least last position / 16 + 1
};

/// Example, two slices: positions 30..32 of a sequence on pages {7, 2, 5} and position 3 of one on page {9}:
/// num_rows 4, slices {{0,3,30,0,0,3},{3,1,3,0,3,1}}, pages {7,2,5,9}, positions {30,31,32,3}, row_slice {0,0,0,1}.
struct PackedRows {
  std::int32_t num_rows;
  std::int32_t num_slices;
  const std::int32_t* tokens;     // [num_rows]
  const std::int32_t* positions;  // [num_rows]  absolute, from 0
  const std::int32_t* row_slice;  // [num_rows]  index into slices
  const Slice* slices;            // [num_slices]
  const std::int32_t* pages;      // [num_pages] physical page ids of all slices
  std::int32_t num_pages;
  const std::int32_t* logit_rows;  // [num_logit_rows] rows whose logits are wanted, ascending
  std::int32_t num_logit_rows;
  /// Looped models: [num_rows] the row of the state bank that keeps each row's hidden state between its passes, -1 for
  /// none; null for a plain model. Rows of depth > 0 begin with it, rows that go on end with it.
  const std::int32_t* states = nullptr;
  const std::int32_t* references = nullptr;  // [num_rows] slot of the reference store, -1 for dense rows; or null
  /// With references, else null: the pages of the rows' index lists (sparse_decode.h). Those of row i begin at
  /// list_pages[list_first[i]]; a dense row has none.
  const std::int32_t* list_pages = nullptr;  // [num_list_pages] physical ids, in the order of the ranks
  const std::int32_t* list_first = nullptr;  // [num_rows]
  std::int32_t num_list_pages = 0;
};

/// What attention does for a row. Sparse decoding (sparse_decode.h): a captured row is dense, and its reference is
/// kept; a consuming row reads only what its reference kept; a selecting row attends to some of its pages.
enum class RowMode : std::uint32_t { dense = 0, capture = 1, consume = 2, select = 3 };

/// Configured limits: what `bind` sizes worst-case memory by. Never the pool's size.
struct StepLimits {
  std::int32_t max_rows;                      // scheduler.step_tokens, at least max_slices
  std::int32_t max_slices;                    // scheduler.max_batch: one slice a sequence
  std::int32_t max_logit_rows;                // rows that can want logits in one step
  std::int32_t max_context;                   // positions of one sequence
  std::int32_t max_pages;                     // page table entries of one step, all slices together
  std::int32_t max_decode_rows = max_slices;  // decoded rows of one step: max_batch times the rows of a round
  std::int32_t max_list_pages = 0;            // entries of PackedRows::list_pages in one step
};

}  // namespace tessera::sdk
