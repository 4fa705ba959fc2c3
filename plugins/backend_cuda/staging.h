// Pinned host memory between the engine's arrays and the device.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "tessera/sdk/backend.h"
#include "tessera/sdk/batch.h"
#include "tessera/sdk/rounds.h"
#include "tessera/sdk/status.h"

namespace tessera_cuda {

/// Of each row and of each slice, where it comes from; null where the host knows it itself.
struct SourceRows {
  const tessera::sdk::RowSource* rows;
  const tessera::sdk::RowSource* slices;
};

/// A step's metadata: packed into one pinned buffer (of a bank), copied once to one device buffer. Offsets depend on
/// the limits only, so that the device pointers of every step are the same, as recorded graphs need.
class StepStaging {
 public:
  StepStaging() = default;
  ~StepStaging();
  StepStaging(const StepStaging&) = delete;
  StepStaging& operator=(const StepStaging&) = delete;

  /// Once: claims the buffers. With several banks the copies of as many steps may be under way; `sourced` steps come
  /// with sources.
  tessera::sdk::Status bind(const tessera::sdk::StepLimits& limits, std::int32_t banks = 1,
                            bool sourced = false) noexcept;
  /// Enqueues the copy; `device` gets the same fields with device pointers. Refuses what exceeds the limits.
  tessera::sdk::Status send(const tessera::sdk::PackedRows& host, cudaStream_t stream, tessera::sdk::PackedRows* device,
                            std::int32_t bank = 0, const SourceRows& sources = {}) noexcept;
  /// On the device, of the last step that was sent with sources.
  SourceRows sources() const;

 private:
  /// Byte offsets; pages come last, so that a short step copies few of them.
  struct Layout {
    std::size_t tokens, positions, row_slice, states, references, list_first, slices, logit_rows, row_sources,
        slice_sources, list_pages, pages, bytes;
  };
  struct Pinned {
    char* data = nullptr;
    cudaEvent_t sent = nullptr;  // the copy out of it is over
  };

  tessera::sdk::StepLimits limits_{};
  Layout at_{};
  std::vector<Pinned> banks_;
  char* device_ = nullptr;
};

/// KV copies on their way to the device, `kMost` at a time.
class CopyStaging {
 public:
  CopyStaging() = default;
  ~CopyStaging();
  CopyStaging(const CopyStaging&) = delete;
  CopyStaging& operator=(const CopyStaging&) = delete;

  tessera::sdk::Status bind() noexcept;
  /// Enqueues the upload of the first *part copies; waits for the last upload, not for what used it.
  tessera::sdk::Status send(const tessera::sdk::KvCopy* host, std::int32_t count, cudaStream_t stream,
                            const tessera::sdk::KvCopy** device, std::int32_t* part) noexcept;

 private:
  static constexpr std::int32_t kMost = 4096;
  tessera::sdk::KvCopy* pinned_ = nullptr;
  tessera::sdk::KvCopy* device_ = nullptr;
  cudaEvent_t sent_ = nullptr;
};

/// Device to host through two pinned halves: one is emptied while the other fills.
class Downloader {
 public:
  Downloader() = default;
  ~Downloader();
  Downloader(const Downloader&) = delete;
  Downloader& operator=(const Downloader&) = delete;

  tessera::sdk::Status bind() noexcept;
  /// Returns when everything enqueued before is done and `host` is filled.
  tessera::sdk::Status fetch(void* host, const void* device, std::size_t bytes, cudaStream_t stream) noexcept;

 private:
  static constexpr std::size_t kHalf = std::size_t{1} << 20;
  char* pinned_ = nullptr;
  cudaEvent_t filled_[2] = {};
};

}  // namespace tessera_cuda
