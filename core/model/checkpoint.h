// Safetensors files, memory-mapped: one file or the shards of an index.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/sha256.h"
#include "base/status.h"
#include "tessera/sdk/tensor.h"

namespace tessera {

struct TensorInfo {
  std::string name;
  sdk::DType dtype;  // f32, bf16 or f16
  std::vector<std::int64_t> shape;
  const std::byte* data;  // in the mapping
  std::size_t bytes;
};

/// Owns the mappings. Every tensor is handed out exactly once: asking twice, or leaving one over, is an error, so that
/// no weight of a checkpoint is silently ignored or used for two things (tied embeddings are read once and shared).
class Checkpoint {
 public:
  /// model.safetensors, or model.safetensors.index.json and its shards. Headers are checked in full: sizes, ranges,
  /// overlaps, duplicates, element types; hostile files are refused, never crash.
  static Result<Checkpoint> open(const std::filesystem::path& model_dir);
  static Result<Checkpoint> open_file(const std::filesystem::path& file);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  std::span<const TensorInfo> tensors() const;  // by name
  bool has(std::string_view name) const;
  /// Marks it used. Fails when absent, used before, or of another shape (the message names both shapes).
  Result<TensorInfo> take(std::string_view name, std::span<const std::int64_t> shape);
  /// Fails naming the first tensors nobody took.
  Status all_taken() const;

  std::int64_t total_bytes() const;  // of tensor data
  /// SHA-256 of each file's bytes, by file name. Advances `progress` by bytes.
  std::map<std::string, Digest> digests(Progress& progress) const;
  /// The same in one digest.
  Result<Digest> digest(Progress& progress) const { return folded(digests(progress)); }
  /// In file name order; of one file its own.
  static Digest folded(const std::map<std::string, Digest>& digests);

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Exactly widened copy as f32.
std::vector<float> to_f32(const TensorInfo& tensor);

}  // namespace tessera
