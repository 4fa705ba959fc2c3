// One small adapter a checkpoint family: config.json onto a DecoderSpec.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/status.h"
#include "model/spec.h"

namespace tessera {

inline constexpr std::int64_t kMaxVocab = 1 << 22;
inline constexpr std::int32_t kMaxLoops = 16;

/// A value for an error message: short, and never a walk into a hostile file's nesting.
std::string shown(const nlohmann::json& value);

/// Reads keys of one config.json; the first mistake is kept and later reads return their fallback.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& json, std::string source) : json_(json), source_(std::move(source)) {}

  /// A whole number within [min, max]; required unless there is a fallback. null counts as absent.
  std::int32_t integer(const char* key, std::int64_t min, std::int64_t max,
                       std::optional<std::int32_t> fallback = std::nullopt);
  double real(const char* key, double min, double max, double fallback);
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, const std::string& fallback);
  bool has(const char* key) const;
  const nlohmann::json& at(const char* key) const { return json_.at(key); }

  void refuse(Status status);
  const Status& status() const { return status_; }
  const std::string& source() const { return source_; }

 private:
  const nlohmann::json& json_;
  std::string source_;
  Status status_;
};

struct Family {
  const char* name;
  void (*describe)(ConfigReader& reader, DecoderSpec& spec);
};

/// Null when the family is unknown.
const Family* find_family(const std::string& model_type);
std::string known_families();

}  // namespace tessera
